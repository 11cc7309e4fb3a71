import { useCallback, useEffect, useMemo, useState } from "preact/hooks";
import type { SessionView } from "../admin/views.ts";
import { Api } from "./api.ts";
import { ConsoleContext, type Notice } from "./context.ts";
import { Notices } from "./parts/notices.tsx";
import { Shell } from "./shell.tsx";
import { SignIn } from "./sign-in.tsx";
import { forgetToken, keepToken, keptToken } from "./token.ts";

interface SignedIn {
  readonly api: Api;
  readonly session: SessionView;
}

/** Asks for a token, and shows the console for as long as it is accepted. */
export function App() {
  const [signedIn, setSignedIn] = useState<SignedIn>();
  const [isAsking, setIsAsking] = useState(keptToken() !== undefined);
  const [refusal, setRefusal] = useState<string>();
  const [notice, setNotice] = useState<Notice>();

  const signOut = useCallback((why?: string) => {
    forgetToken();
    setSignedIn(undefined);
    setNotice(undefined);
    setRefusal(why);
  }, []);

  const signIn = useCallback(
    async (token: string) => {
      const api = new Api(token, () => signOut("This token is not accepted. Check it, and sign in again."));
      setIsAsking(true);
      setRefusal(undefined);
      try {
        const session = await api.session();
        keepToken(token);
        setSignedIn({ api, session });
      } catch (error) {
        setRefusal((before) => before ?? (error instanceof Error ? error.message : String(error)));
      } finally {
        setIsAsking(false);
      }
    },
    [signOut],
  );

  useEffect(() => {
    const token = keptToken();
    if (token !== undefined) void signIn(token);
  }, [signIn]);

  const closeNotice = useCallback(() => setNotice(undefined), []);
  const value = useMemo(() => signedIn && { ...signedIn, say: setNotice }, [signedIn]);
  if (value === undefined) return <SignIn isAsking={isAsking} refusal={refusal} onToken={signIn} />;
  return (
    <ConsoleContext.Provider value={value}>
      <Shell onSignOut={() => signOut()} />
      <Notices notice={notice} onClose={closeNotice} />
    </ConsoleContext.Provider>
  );
}

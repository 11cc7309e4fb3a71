import { render } from "preact";
import { applyTheme, chosenTheme } from "../../browser/theme.ts";
import { App } from "./app.tsx";

applyTheme(chosenTheme());
const root = document.getElementById("playground");
if (root !== null) render(<App />, root);

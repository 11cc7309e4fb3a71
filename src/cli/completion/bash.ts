import type { Command } from "../command.ts";
import { optionWords, rootWords } from "./words.ts";

/** For bash: `source <(latchkey completion bash)`. */
export function bashCompletion(commands: readonly Command[]): string {
  const names = commands.map(({ name }) => name).join(" ");
  return `# latchkey: completion for bash. To be sourced.
_latchkey() {
  local cur=\${COMP_WORDS[COMP_CWORD]} prev=\${COMP_WORDS[COMP_CWORD - 1]}
  COMPREPLY=()
  # Bash takes --state=unknown apart.
  if [[ $cur == "=" ]]; then cur=""; elif [[ $prev == "=" ]]; then prev=\${COMP_WORDS[COMP_CWORD - 2]}; fi
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W ${quoted(rootWords(commands).join(" "))} -- "$cur"))
    return
  fi
  case "\${COMP_WORDS[1]} $prev" in
${commands.flatMap(valueCases).join("\n")}
  esac
  case \${COMP_WORDS[1]} in
${commands.map(wordCase).join("\n")}
    help) COMPREPLY=($(compgen -W ${quoted(names)} -- "$cur")) ;;
  esac
}
complete -F _latchkey latchkey
`;
}

/** What can stand after an option that takes a value. */
function valueCases({ name, options }: Command): string[] {
  return Object.entries(options).flatMap(([option, { placeholder, choices, isFile }]) => {
    if (placeholder === undefined) return [];
    const words = choices === undefined ? "" : `-W ${quoted(choices.join(" "))}`;
    const generate = isFile ? "-f" : words;
    const reply = generate === "" ? "" : ` COMPREPLY=($(compgen ${generate} -- "$cur"));`;
    return [`    ${quoted(`${name} --${option}`)})${reply} return ;;`];
  });
}

function wordCase(command: Command): string {
  return `    ${command.name}) COMPREPLY=($(compgen -W ${quoted(optionWords(command).join(" "))} -- "$cur")) ;;`;
}

/** Words of letters, digits, dashes and underscores; nothing in them means anything to a shell. */
function quoted(text: string): string {
  return `"${text}"`;
}

import type { Command } from "../command.ts";
import type { Option } from "../option.ts";

/** For zsh: `source <(latchkey completion zsh)`, or as a file named `_latchkey` on `$fpath`. */
export function zshCompletion(commands: readonly Command[]): string {
  const described = commands.map(({ name, summary }) => `    ${quoted(`${name}:${summary}`)}`);
  return `#compdef latchkey
# latchkey: completion for zsh. To be sourced, or put on $fpath as _latchkey.
_latchkey() {
  local -a commands
  commands=(
${described.join("\n")}
    'help:tells more about a command'
  )
  if (( CURRENT == 2 )); then
    _describe -t commands command commands
    compadd -- --help --version
    return
  fi
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  case $command in
${commands.map(commandCase).join("\n")}
    help) _describe -t commands command commands ;;
  esac
}
if [[ $funcstack[1] == _latchkey ]]; then _latchkey "$@"; else compdef _latchkey latchkey; fi
`;
}

function commandCase({ name, options, arguments: { choices, max } }: Command): string {
  const specs = Object.entries(options).flatMap(([option, spec]) => optionSpecs(option, spec));
  const rest = choices === undefined ? ": :" : `1:what:(${choices.join(" ")})`;
  const args = max === 0 ? [] : [quoted(choices === undefined ? "*:argument:" : rest)];
  return `    ${name}) _arguments -s \\\n${[...specs, ...args].map((spec) => `      ${spec}`).join(" \\\n")} ;;`;
}

function optionSpecs(name: string, option: Option): string[] {
  const { description, placeholder, choices, isFile, isRepeatable, short } = option;
  const about = `[${escaped(description)}]`;
  const values = isFile ? "_files" : choices === undefined ? " " : `(${choices.join(" ")})`;
  const value = placeholder === undefined ? "" : `:${escaped(placeholder)}:${values}`;
  const repeat = isRepeatable ? "*" : "";
  const long = quoted(`${repeat}--${name}${placeholder === undefined ? "" : "="}${about}${value}`);
  return short === undefined ? [long] : [long, quoted(`${repeat}-${short}${about}${value}`)];
}

/** What ends a description in the language of `_arguments`. */
function escaped(text: string): string {
  return text.replace(/[[\]:\\]/g, "\\$&");
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

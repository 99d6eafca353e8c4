#include "app/flags/pages.h"

#include <algorithm>

#include "app/flags/help.h"
#include "app/node/version.h"

namespace spillway::app {
namespace {

// Of man(7): a backslash is said twice, and a line may not begin with a dot or an apostrophe.
std::string roff(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size(); ++at) {
    const bool begins = at == 0 || text[at - 1] == '\n';
    if (begins && (text[at] == '.' || text[at] == '\'')) out += "\\&";
    if (text[at] == '\\') out += '\\';
    if (text[at] == '-') out += '\\';
    out += text[at];
  }
  return out;
}

// What may stand behind a flag, where that is a choice.
std::string choices_of(const Option& option) {
  std::string words = option.unset_word;
  for (const std::string& choice : option.field.choices) words += (words.empty() ? "" : " ") + choice;
  return words;
}

}  // namespace

std::string markdown_page() {
  std::string text =
      "# Commands and flags\n\n```sh\nbuild/release/spillway --help\n```\n\nMade from the program's own table by `scripts/docs.sh`; a test "
      "compares.\n";
  for (const CommandInfo& one : commands()) text += "\n## " + std::string(one.name) + "\n\n```\n" + command_help(one.command) + "```\n";
  return text +
         "\n## JSON\n\nEvery command takes `--json`: results, and refusals as `{\"error\": {\"status\": 2, \"message\": \"…\"}}`, go to "
         "stdout. `train` ends with one object, and\nwrites one a step to `metrics.jsonl`; `--config` reads flags from an object whose "
         "keys "
         "are the flags' names with underscores.\n";
}

std::string man_page() {
  std::string text = std::string(".TH SPILLWAY 1 \"\" \"spillway ") + kVersion +
                     "\" \"User Commands\"\n.SH NAME\nspillway \\- trains models that do " +
                     "not fit\n.SH SYNOPSIS\n.B spillway\n.I COMMAND\n[flags]\n.SH DESCRIPTION\n.nf\n" + roff(program_help()) + ".fi\n";
  for (const CommandInfo& one : commands()) {
    std::string name(one.name);
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    text += ".SH " + name + "\n.nf\n" + roff(command_help(one.command)) + ".fi\n";
  }
  return text;
}

std::string bash_completion() {
  std::string names, flags, words;
  for (const CommandInfo& one : commands()) {
    names += (names.empty() ? "" : " ") + std::string(one.name);
    std::string own;
    for (const Option* option : options_of(one.command)) {
      if (option->positional) continue;
      own += (own.empty() ? "--" : " --") + option->name;
      if (const std::string choices = choices_of(*option); !choices.empty())
        words += "    " + std::string(one.name) + ":--" + option->name + ") COMPREPLY=($(compgen -W \"" + choices +
                 "\" -- \"$word\")); return ;;\n";
    }
    flags += "    " + std::string(one.name) + ") flags=\"" + own + " --help\" ;;\n";
  }
  return "# bash completion of spillway: source it, or put it into a folder of bash-completion's\n_spillway() {\n"
         "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]} flags=\n"
         "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n    COMPREPLY=($(compgen -W \"" +
         names + " help version\" -- \"$word\"))\n    return\n  fi\n  case $command:$before in\n" + words + "  esac\n  case $command in\n" +
         flags +
         "  esac\n  case $word in\n    -*) COMPREPLY=($(compgen -W \"$flags\" -- \"$word\")) ;;\n  esac\n}\n"
         "complete -o default -F _spillway spillway\n";
}

}  // namespace spillway::app

#include "app/help/pages.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <string_view>
#include <vector>

#include "app/help/help.h"
#include "trainer/node/version.h"

namespace spillway::app {
namespace {

// Escapes text for man(7): backslashes are doubled, dashes become \-, and a line that begins with a dot or an apostrophe gets \& before it.
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

// Turns off indentation and filling for a text, because help texts are already laid out in 80 columns and man would indent them.
std::string as_it_is(const std::string& text) { return ".in 0\n.nf\n" + roff(text) + ".fi\n"; }

// The section of docs/commands.md that describes the keys of the program's JSON output.
constexpr const char* kJson = R"(
## JSON

Every command takes `--json`: results, and refusals as `{"error": {"status": 2, "message": "…"}}`, go to stdout. `--config` reads flags from an
object whose keys are the flags' names with underscores; a run's own `config.json` is one. Text that is no UTF-8 goes as `{"bytes": "636166e9"}`.

A run's `metrics.jsonl` has one object a step. Floats read back to the same bits; one that is not finite is null, with `nonfinite` beside it.

| key | value |
|---|---|
| `step` | from 1; after a restart lines behind the step gone on from are dropped |
| `loss`, `grad_norm`, `lr` | the mean over the step's counted targets before its update, in nats; the norm before clipping; the rate used |
| `tokens`, `positions`, `samples` | of this step: tokens without padding; positions, which are tokens and padding; rows. Older programs counted padding as tokens, and had no `positions` |
| `tokens_per_s`, `positions_per_s`, `samples_per_s` | the same by the step's seconds |
| `step_ms`, `predicted_ms`, `phase_ms`, `bound_by` | measured; the plan's; by kind of work; what the plan says limits it |
| `loss_scale`, `skipped`, `clipped`, `redo` | fp16's scale; gradients were not finite; the norm was over `--gradient-clipping`; what was updated inside the backward is updated again |
| `tier_bytes`, `peak_bytes`, `read_bytes`, `written_bytes` | each an object of `device`, `host`, `nvme`: held now, held at most, moved in this step |
| `exchanged_bytes`, `sent_bytes`, `slowest_rank`, `slowest_rank_waits` | of several ranks: bytes between data-parallel ranks, and to other pipeline stages; who waited least for the others, and which share of the step |
| `nvme_written_per_step`, `nvme_written_per_token`, `nvme_written_per_day`, `days_to_endurance` | bytes; the last with `--endurance` |
| `began_at_step` | where the process that wrote the line went on from |
| `flops_per_s`, `matmul_share` | the model's own, and the share of what `bench matmul` measured (null before) |
| `validation_loss`, `validation_accuracy` | of steps that validate |
| `recovered` | true on a line that a killed process did not come to write |

`train` itself ends with one object: `step`, `loss`, `grad_norm`, `validation_loss`, `run`, `trained` (`model`, `parameters`,
`trained_parameters`; of this start `steps`, `tokens`, `positions`, `counted`, `tokens_per_s`, `positions_per_s`; `tokens_in_all`), `checkpoint`, `python`, `audit` (rows of `what`, `predicted`, `measured`,
`unit`), `bound_by`, `unplanned_bytes`, `machine_was_busy` (other programs
held the run up, so its times are too long), with `--profile` `profile`; a finished run with `finished`, `run`, `step`, `steps`.
)";

// Returns the words that a flag accepts, separated by spaces; empty if any text may follow it.
std::string choices_of(const Option& option) {
  std::string words = option.unset_word;
  for (const std::string& choice : option.field.choices) words += (words.empty() ? "" : " ") + choice;
  return words;
}

// Escapes text for Markdown, in which these characters may stand for emphasis, code, links and HTML.
std::string plain(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else {
      if (std::string_view("\\`*_[]").find(c) != std::string_view::npos) out += '\\';
      out += c;
    }
  }
  return out;
}

std::string title_of(const Option& option) { return option.positional ? option.shown_metavar() : "--" + option.name; }

std::string code(const std::string& text) { return "`" + text + "`"; }

// Returns the anchor that GitHub makes of a heading: lower case, dashes for spaces, and no other punctuation.
std::string anchor(const std::string& title) {
  std::string out;
  for (const unsigned char c : title) {
    if (std::isalnum(c) || c == '-' || c == '_') out += static_cast<char>(std::tolower(c));
    if (c == ' ') out += '-';
  }
  return out;
}

// Returns one flag's part of docs/commands.md: a heading, which gives it an anchor, then its value, its default, its commands and what it
// does.
std::string flag_section(const Option& option, const std::string& title) {
  const std::string metavar = option.shown_metavar(), value = option.shown_default();
  std::string head = code(title_of(option) + (option.positional || metavar.empty() ? "" : " " + metavar));
  if (option.required) head += ", required";
  if (option.required_by_train) head += ", required by train";
  if (!value.empty()) head += ", default: " + plain(value);
  std::string takers;
  for (const CommandInfo& one : commands()) {
    if (option.belongs_to(one.command)) takers += (takers.empty() ? "" : ", ") + std::string(one.name);
  }
  return "\n#### " + code(title) + "\n\n" + wrapped(head + ". (" + takers + ")", 0, 140) + "\n" +
         wrapped(plain(description(option)), 0, 140);
}

// Returns links to the flags that a command shares with commands before it.
std::string shared_flags(Command command, const std::vector<const Option*>& shared, const std::map<const Option*, std::string>& titles) {
  std::vector<const Option*> of_train = options_of(Command::train);
  std::erase_if(of_train, [&](const Option* option) { return option->belongs_to(command); });
  std::string text;
  if (of_train.size() < 4) {
    for (const Option* option : of_train) text += (text.empty() ? " without " : ", ") + code(title_of(*option));
    return "Takes all flags of [train](#train)" + text + ".";
  }
  for (const Option* option : shared)
    text += (text.empty() ? "" : ", ") + ("[" + code(title_of(*option)) + "](#" + anchor(titles.at(option)) + ")");
  return "Also takes these flags, which are described above: " + text + ".";
}

// Returns a command's part of docs/commands.md. `titles` has the headings of the flags that were described before and gets those of this
// one.
std::string section_of(const CommandInfo& one, std::map<const Option*, std::string>& titles) {
  const std::string name(one.name);
  std::string text =
      "\n## " + name + "\n\n" + code("spillway " + name + " " + std::string(one.usage)) + ": " + std::string(one.summary) + ".\n";
  std::vector<const Option*> shared, own;
  for (const Option* option : options_of(one.command)) (titles.contains(option) ? shared : own).push_back(option);
  if (!shared.empty()) text += "\n" + wrapped(shared_flags(one.command, shared, titles), 0, 140);
  const std::vector<std::string> groups = groups_of(own);
  for (const std::string& group : groups) {
    if (groups.size() > 1) text += "\n### " + group + " (" + name + ")\n";
    for (const Option* option : own) {
      if (option->group != group) continue;
      const bool taken = std::ranges::any_of(titles, [&](const auto& entry) { return entry.second == title_of(*option); });
      titles[option] = (taken ? name + " " : "") + title_of(*option);
      text += flag_section(*option, titles[option]);
    }
  }
  return text;
}

}  // namespace

std::string markdown_page() {
  std::string text =
      "# Commands and flags\n\n```sh\nbuild/release/spillway --help\n```\n\nThis page has every flag once, under the first command that "
      "takes it. "
      "A flag with another meaning in a later\ncommand is described there too. The page is made from the program's own table by "
      "`scripts/docs.sh`; a test compares.\n";
  std::map<const Option*, std::string> titles;
  for (const CommandInfo& one : commands()) text += section_of(one, titles);
  return text + kJson;
}

std::string man_page() {
  std::string text = std::string(".TH SPILLWAY 1 \"\" \"spillway ") + kVersion +
                     "\" \"User Commands\"\n.SH NAME\nspillway \\- trains models larger " +
                     "than GPU memory\n.SH SYNOPSIS\n.B spillway\n.I COMMAND\n[flags]\n.SH DESCRIPTION\n" + as_it_is(program_help());
  for (const CommandInfo& one : commands()) {
    std::string name(one.name);
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    text += ".SH " + name + "\n" + as_it_is(command_help(one.command));
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

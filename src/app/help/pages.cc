#include "app/help/pages.h"

#include <algorithm>

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
`unit`), `bound_by`, `unplanned_bytes`, with `--profile` `profile`; a finished run with `finished`, `run`, `step`, `steps`.
)";

// Returns the words that a flag accepts, separated by spaces; empty if any text may follow it.
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

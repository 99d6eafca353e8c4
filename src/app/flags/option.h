// The one table of options: flags, JSON keys, --help, defaults, checks, the run folder's hash and the resume check all come from it. An
// option is known by (name, command): two commands may give one name different meanings. Rows live in options_*.cc. Immutable after the
// first call of options(); thread-safe.
#pragma once
#include <functional>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "app/flags/config.h"

namespace spillway::app {

enum class Command {
  train,
  plan,
  generate,
  export_model,
  tokenize,
  inspect,
  status,
  doctor,
  bench,
  schedule,
  slurm,
  selftest,
  evaluate,
  chat,
  classify,
  report,
  top,
  import_model
};

struct CommandInfo {
  std::string_view name;
  std::string_view usage;    // what follows the name
  std::string_view summary;  // one line
  Command command;
};
/// All commands in order of use.
std::span<const CommandInfo> commands();
const CommandInfo& info(Command command);

/// One command's configuration.
using Settings = std::variant<TrainConfig, PlanConfig, GenerateConfig, ExportConfig, TokenizeConfig, InspectConfig, StatusConfig,
                              DoctorConfig, BenchConfig, ScheduleConfig, SlurmConfig, SelftestConfig, EvaluateConfig, ChatConfig,
                              ClassifyConfig, ReportConfig, TopConfig, ImportConfig>;
Settings default_settings(Command command);

enum class Kind { text, integer, number, flag, size, duration, choice, composite };

/// How an option's text becomes a field of the Settings and back. Text that does not parse throws Error(usage) that names `what`.
struct Field {
  Kind kind = Kind::text;
  bool repeatable = false;
  std::vector<std::string> choices;  // of Kind::choice
  std::function<void(Settings&, const std::string& text, const std::string& what)> set;
  /// Empty: unset. One text a value.
  std::function<std::optional<std::vector<std::string>>(const Settings&)> get;
};

/// What a number may be: low <= x <= high, or with the limits themselves left out.
struct Range {
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  bool low_open = false, high_open = false;
  bool holds(double x) const;
  std::string text() const;  // "at least 1", "in [0, 1)"
};

struct Option {
  std::string name;   // without dashes: "learning-rate"
  std::string group;  // heading in --help
  std::string help;
  Field field;  // without get and set: the program itself reads it (--config), or it is not built
  unsigned commands = 0;
  bool changes_numbers = false;
  bool absent_when_unset = false;  // of what runs are known by: younger than they are, and where unset they keep their folders
  std::string metavar;             // default: by kind
  std::string default_text;        // where the field's own initial value does not say it
  std::string unset_word;          // the word for "decide for me": "auto"
  std::optional<Range> range;
  bool required = false, positional = false;
  std::string exclusive;  // another option of which only one may be given
  std::string instead;    // what works instead of what is not built
  bool built = true;
  std::vector<std::string> later;  // choices that are known but not built

  bool belongs_to(Command command) const { return commands >> static_cast<unsigned>(command) & 1u; }
  std::string key() const;  // in JSON: dashes become underscores
  std::string shown_default() const;
  std::string shown_metavar() const;
};

const std::vector<Option>& options();
std::vector<const Option*> options_of(Command command);
/// Null when the command has none of that name.
const Option* find_option(Command command, std::string_view name);

/// The tables options() joins.
std::vector<Option> model_options();
std::vector<Option> optimizer_options();
std::vector<Option> memory_options();
std::vector<Option> run_options();
std::vector<Option> tool_options();
std::vector<Option> schedule_options();
std::vector<Option> slurm_options();

}  // namespace spillway::app

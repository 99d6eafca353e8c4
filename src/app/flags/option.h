// The one table of all options, from which flags, JSON keys, --help, defaults, checks, the run folder's hash and the resume check are
// derived. An option is identified by (name, command), because two commands may give one name different meanings. The rows are in
// options_*.cc. The table does not change after the first call of options(). Thread-safe.
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
#include "app/flags/value.h"

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
  std::string_view usage;    // arguments that follow the name, for --help
  std::string_view summary;  // one line
  Command command;
};
/// Returns all commands in the order in which --help lists them.
std::span<const CommandInfo> commands();
const CommandInfo& info(Command command);

/// The configuration of one command. The alternatives are in the order of enum Command.
using Settings = std::variant<TrainConfig, PlanConfig, GenerateConfig, ExportConfig, TokenizeConfig, InspectConfig, StatusConfig,
                              DoctorConfig, BenchConfig, ScheduleConfig, SlurmConfig, SelftestConfig, EvaluateConfig, ChatConfig,
                              ClassifyConfig, ReportConfig, TopConfig, ImportConfig>;
Settings default_settings(Command command);

enum class Kind { text, integer, number, flag, size, duration, choice, composite };

/// Stores an option's value in a field of the Settings, and returns it as text. `set` throws Error(usage), which names `what`, if the value
/// is wrong, and WrongKind if its type is.
struct Field {
  Kind kind = Kind::text;
  bool repeatable = false;
  std::vector<std::string> choices;  // allowed words, for Kind::choice
  std::function<void(Settings&, const Value&, const std::string& what)> set;
  /// Returns one text for each value, or nothing if the field is unset.
  std::function<std::optional<std::vector<std::string>>(const Settings&)> get;
};

/// The range that a number must lie in: low <= x <= high. If low_open or high_open is true, that limit itself is not allowed.
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
  Field field;                     // has no get and set if the program itself reads the option (--config)
  unsigned commands = 0;           // set of the commands that take the option; bit i stands for the Command of value i
  bool changes_numbers = false;    // the option changes the numbers that a run computes
  bool absent_when_unset = false;  // left out of the run hash while unset, so that runs older than the option keep their folders
  std::string metavar;             // name of the value in --help; empty: one that follows from the field's kind
  std::string default_text;        // default shown in --help; empty: the field's initial value
  std::string unset_word;          // the word that leaves the decision to the program: "auto"
  std::optional<Range> range;
  bool required = false, positional = false;
  std::string exclusive;  // name of another option that may not be given together with this one

  bool belongs_to(Command command) const { return commands >> static_cast<unsigned>(command) & 1u; }
  std::string key() const;  // the option's JSON key: its name with underscores for dashes
  std::string shown_default() const;
  std::string shown_metavar() const;
};

const std::vector<Option>& options();
std::vector<const Option*> options_of(Command command);
/// Returns the command's option of that name, or null if it has none.
const Option* find_option(Command command, std::string_view name);

/// Each of these returns one part of the table that options() joins.
std::vector<Option> model_options();
std::vector<Option> optimizer_options();
std::vector<Option> memory_options();
std::vector<Option> run_options();
std::vector<Option> tool_options();
std::vector<Option> schedule_options();
std::vector<Option> slurm_options();

}  // namespace spillway::app

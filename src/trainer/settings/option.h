// Declares the one table of all options. Flags, JSON keys, --help, defaults, checks, the run folder's hash and the resume
// check are derived from it. An option is identified by (name, command), because two commands may give one name different
// meanings. The rows are in options_*.cc. The table does not change after the first call of options(). Thread-safe.
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

#include "trainer/settings/config.h"
#include "trainer/settings/value.h"

namespace spillway::trainer {

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
  std::string_view usage;    // the arguments that follow the command's name, for --help
  std::string_view summary;  // one line of text that says what the command does
  Command command;
};
/// Returns all commands in the order in which --help lists them.
std::span<const CommandInfo> commands();
const CommandInfo& info(Command command);

/// Settings is the configuration of one command. The alternatives are in the order of enum Command.
using Settings = std::variant<TrainConfig, PlanConfig, GenerateConfig, ExportConfig, TokenizeConfig, InspectConfig, StatusConfig,
                              DoctorConfig, BenchConfig, ScheduleConfig, SlurmConfig, SelftestConfig, EvaluateConfig, ChatConfig,
                              ClassifyConfig, ReportConfig, TopConfig, ImportConfig>;
Settings default_settings(Command command);

enum class Kind { text, integer, number, flag, size, duration, choice, composite };

/// Field converts an option's text to a member of the Settings and back. If
/// the text does not parse, `set` throws Error(usage), which names `what`.
struct Field {
  Kind kind = Kind::text;
  bool repeatable = false;
  std::vector<std::string> choices;  // the allowed words, if kind is Kind::choice
  std::function<void(Settings&, const Value&, const std::string& what)> set;
  /// Returns one text for each value of the member, or nothing if the member is unset.
  std::function<std::optional<std::vector<std::string>>(const Settings&)> get;
};

/// Range is the range in which a number must lie: low <= x <= high. If low_open or high_open is true, that limit itself is not allowed.
struct Range {
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  bool low_open = false, high_open = false;
  bool holds(double x) const;
  std::string text() const;  // returns text such as "at least 1" or "in [0, 1)"
};

struct Option {
  std::string name;   // name without leading dashes, such as "learning-rate"
  std::string group;  // heading under which --help lists the option
  std::string brief;  // a few words for the short --help of train and plan; options without them appear in --help=all only
  std::string help;
  // the member of the configuration; without get and set if the program itself reads the option, as for --config
  Field field;
  unsigned commands = 0;           // set of the commands that take the option; bit i stands for the Command of value i
  bool changes_numbers = false;    // the option changes the numbers that a run computes
  bool absent_when_unset = false;  // the run hash omits the option while it is unset, so that runs older than the option keep their folders
  std::string metavar;             // name of the value in --help; empty: derived from the field's kind
  std::string default_text;        // default shown in --help; empty: the field's initial value is shown
  std::string unset_word;          // the word with which the user leaves the decision to the program: "auto"
  std::optional<Range> range;
  bool required = false, positional = false;
  std::string exclusive;  // name of another option that may not be given together with this one

  // The attributes below say how the program treats the option. The code that acts on an attribute asks the row, so that no list of names
  // exists beside the table (tests/trainer/settings/option_names_test.cc).
  bool shown_by_inspect = false;        // `inspect RUN` prints the option's value among its first lines
  bool required_by_train = false;       // train needs a value, unlike the other commands that take the option
  bool may_be_empty = false;            // an empty text is a value, not a missing one
  bool is_slurms_name = false;          // the value becomes a name in a job script, and is checked as one
  std::vector<std::string> sbatch;      // options of sbatch that stand for this one in a job script, without dashes
  bool always_in_script = false;        // every job script has one of them
  bool takes_dashes = false;            // the word after the flag is its value even if it begins with two dashes
  bool only_prints = false;             // the option says how results are printed, so commands that the program suggests leave it out
  bool not_compared = false;            // a report does not name the option among the differences between runs
  bool of_one_node = false;             // ranks of a run may have different values, because the option concerns one rank's node or terminal
  bool set_by_launcher = false;         // a launcher sets the value, so commands written for a launcher leave the option out
  bool set_by_cluster = false;          // --cluster sets the value and refuses the option
  bool set_by_rehearsal = false;        // --rehearse sets the value for its runs or needs none, and does not pass the user's value on
  bool compared_by_contents = false;    // the value names files: a run may continue with other paths if the files' contents are the same
  bool makes_rows = false;              // the option decides which rows are made from the same data files
  bool needs_validation_data = false;   // the option is refused without --validation-data and --validation-fraction
  bool of_some_rules = false;           // only some update rules have the option; the others refuse it and leave it unset
  std::string of_lr_schedule;           // name of the only --lr-schedule that accepts the option; empty: all accept it
  bool refused_for_images = false;      // the option is refused for models that read images
  bool refused_for_text = false;        // the option is refused for models that read text
  bool refused_for_own_models = false;  // the option is refused for models that a program builds itself
  bool counted_by_another = false;      // number_keys() leaves the option out, because the value of another option contains it
  /// Returns the text by which number_keys() counts the option in place of its field's value; nothing if the option counts as unset. If
  /// this function is empty, the field's value counts.
  std::function<std::optional<std::string>(const TrainConfig&)> counts_as;

  bool belongs_to(Command command) const { return commands >> static_cast<unsigned>(command) & 1u; }
  std::string key() const;  // returns the option's JSON key: its name with underscores for dashes
  std::string shown_default() const;
  std::string shown_metavar() const;
};

const std::vector<Option>& options();
std::vector<const Option*> options_of(Command command);
/// Returns the command's option of that name, or null if it has none.
const Option* find_option(Command command, std::string_view name);
/// Returns the JSON keys of the command's options that have an attribute, in the table's order: keys_with(c, &Option::makes_rows).
std::vector<std::string> keys_with(Command command, bool Option::*attribute);
/// Returns whether the option's value in `settings` differs from its default. `option` must be an option of the command whose settings
/// these are, and its `field` must be set.
bool is_given(const Option& option, const Settings& settings);

/// Each function below returns one part of the table that options() joins.
std::vector<Option> model_options();
std::vector<Option> optimizer_options();
std::vector<Option> memory_options();
std::vector<Option> run_options();
std::vector<Option> tool_options();
std::vector<Option> schedule_options();
std::vector<Option> slurm_options();

}  // namespace spillway::trainer

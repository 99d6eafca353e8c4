// The values that the user gave, by flag, configuration file or program, by option name, before they become Settings.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "trainer/node/host.h"
#include "trainer/settings/option.h"

namespace spillway::trainer {

struct Given {
  std::vector<Value> values;  // the given values; more than one if the flag is repeated
  std::string what;           // where the values were given, for error messages: "--steps", "steps in run.json", or "steps" by a program
};
using GivenMap = std::map<std::string, Given>;

/// Parses the arguments after the command's name. If --help is among them, the result holds "help" alone. Throws Error(usage)
/// for an unknown flag (naming the nearest), for a flag without its value, and for a word that belongs to no flag.
GivenMap parse_flags(Command command, const std::vector<std::string>& args);

/// Values by the names that programs use, such as "learning_rate".
using NamedValues = std::vector<std::pair<std::string, Value>>;
/// Collects values that a program gives. A list as value is one value if the option takes a list; otherwise each element repeats the
/// option, and an empty list leaves the option unset. Throws Error(usage) for an unknown name (naming the nearest).
GivenMap given_values(Command command, const NamedValues& values);

/// Reads a JSON configuration file. Keys whose value is null are ignored. Throws Error(usage) if the file cannot be read or is not a JSON
/// object, if a key is given twice or is unknown (naming the nearest), or if a value has the wrong type.
GivenMap read_config_file(Command command, const std::string& path);
/// Reads a JSON configuration from its text, as read_config_file() does from a file. `where` names the source in messages.
GivenMap read_config_text(Command command, const std::string& text, const std::string& where);

/// Combines flags with the keys of a configuration file. A flag replaces the value of the key of the same name. A flag also removes keys
/// that may not be given together with it: --epochs removes the file's steps.
GivenMap merge(Command command, const GivenMap& flags, const GivenMap& file);

/// Returns the given flags of `train` as words of a command line. --ranks is left out, because a launcher sets the number of ranks.
std::vector<std::string> train_words(const GivenMap& given);
/// Returns the given flags of `train` as words for the training processes that --rehearse starts. --ranks is kept; flags that the rehearsal
/// sets itself are left out.
std::vector<std::string> rehearsal_words(const GivenMap& given);

/// Checks every given value and stores it in the command's Settings. Throws Error(usage) if a value has the wrong type, is not one of the
/// choices, out of range, given twice or excluded by another option, or if a required option is missing (which `partial` allows).
Settings make_settings(Command command, const GivenMap& given, bool partial = false);

/// Checks every value in `settings` as make_settings() checks a given text. Throws Error(usage) that names the option.
void check_values(Command command, const Settings& settings);

/// Returns every option of the command with its value as JSON, one key per line. Unset options are null, or "auto" if the flag accepts that
/// word.
std::string to_json(Command command, const Settings& settings);

/// Runs the checks that concern several options or the node. Throws Error(usage) for batches that do not
/// divide evenly, options that need another option, features that this version does not have, and options that
/// contradict the launcher. If a --place flag asks for nvme and no path is given, $SLURM_TMPDIR is filled in.
void check_settings(Settings& settings, const Host& host);
/// Runs the checks of check_settings() on settings that a C++ or Python program filled in itself; the program may
/// bring its own data. Also checks each single value, as make_settings() does for values that are given as text.
void check_own_settings(TrainConfig& config, const Host& host);

}  // namespace spillway::trainer

// What the user gave, as text, before it becomes Settings: by option name, with the words an error message calls it by.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "app/flags/option.h"
#include "app/node/host.h"

namespace spillway::app {

struct Given {
  std::vector<std::string> texts;
  std::string what;  // "--steps", or "steps in run.json"
};
using GivenMap = std::map<std::string, Given>;

/// The flags after the command's name; "help" is among them when it was asked for. Throws Error(usage) on an unknown flag (naming the
/// nearest), a flag without its value, and a stray word.
GivenMap parse_flags(Command command, const std::vector<std::string>& args);

/// The keys of a JSON configuration. Throws Error(usage): unreadable, not an object, a key twice or unknown (naming the nearest), a value
/// of the wrong type. Keys with null are as if absent.
GivenMap read_config_file(Command command, const std::string& path);
/// The same from its text; `where` names it in messages.
GivenMap read_config_text(Command command, const std::string& text, const std::string& where);

/// Flags win over the file, also over a key that excludes them (--epochs over steps).
GivenMap merge(Command command, const GivenMap& flags, const GivenMap& file);

/// What was given of train's own flags, as words of a command line, --ranks apart: a launcher says that.
std::vector<std::string> train_words(const GivenMap& given);
/// The same for --rehearse, with --ranks and without what the rehearsal says itself.
std::vector<std::string> rehearsal_words(const GivenMap& given);

/// Every given text, checked and put into the command's Settings. Throws Error(usage): not built, not one of the choices, out of range,
/// given twice, excluded by another, required but missing (unless `partial`).
Settings make_settings(Command command, const GivenMap& given, bool partial = false);

/// Every option of the command with its value, as JSON, a key a line; unset ones are null, or "auto" where the flag knows the word.
std::string to_json(Command command, const Settings& settings);

/// What concerns several options, or the node: batches that do not divide, options that need another, what this version does not build,
/// nvme without a path ($SLURM_TMPDIR is filled in), launchers of several ranks. Throws Error(usage).
void check_settings(Settings& settings, const Host& host);

}  // namespace spillway::app

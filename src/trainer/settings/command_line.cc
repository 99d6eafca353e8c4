// Splits the arguments after a command's name into flags and their values. The option table says what the values mean.
#include <string_view>

#include "base/error.h"
#include "trainer/settings/given.h"
#include "trainer/settings/suggest.h"

namespace spillway::trainer {
namespace {

[[noreturn]] void reject(Command command, const std::string& word) {
  if (word.starts_with("--")) throw Error(ErrorCode::usage, unknown_option(command, word.substr(2, word.find('=') - 2), true));
  if (word.starts_with("-")) {
    throw Error(ErrorCode::usage,
                "[" + word + "] unknown flag: flags have two dashes, spillway " + std::string(info(command).name) + " --help lists them");
  }
  throw Error(ErrorCode::usage,
              "[" + word + "] expected a flag, got a word that belongs to no flag: for several values repeat the flag (--data A --data B)");
}

// Returns the positional argument that the next word belongs to: the first one that has no value yet or is repeatable. Returns null if
// there is none.
const Option* next_positional(Command command, const GivenMap& given) {
  for (const Option* option : options_of(command)) {
    if (option->positional && (option->field.repeatable || !given.contains(option->name))) return option;
  }
  return nullptr;
}

}  // namespace

GivenMap parse_flags(Command command, const std::vector<std::string>& args) {
  GivenMap given;
  std::string rejected;  // the first invalid word; reported after all words are read, because --help takes precedence
  bool flags_end = false, help = false;
  const auto reject_later = [&](const std::string& word) { rejected = rejected.empty() ? word : rejected; };
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& word = args[i];
    if (!flags_end && word == "--") {
      flags_end = true;
    } else if (!flags_end && (word == "--help" || word == "-h")) {
      help = true;
    } else if (!flags_end && word.starts_with("--")) {
      const size_t equals = word.find('=');
      const std::string name = word.substr(2, equals - 2);
      const Option* const option = find_option(command, name);
      if (option == nullptr || option->positional) {
        reject_later(word);
        continue;
      }
      Given& to = given[name];
      to.what = "--" + name;
      if (equals != word.npos) {
        to.values.push_back(word.substr(equals + 1));
      } else if (option->field.kind == Kind::flag) {
        to.values.push_back("true");
      } else if (i + 1 < args.size() && (option->takes_dashes || !args[i + 1].starts_with("--"))) {
        to.values.push_back(args[++i]);
      } else {
        throw Error(ErrorCode::usage, "[" + word + "] expected a value (" + option->shown_metavar() + ") after the flag, got nothing");
      }
    } else if (const Option* const option =
                   flags_end || !word.starts_with("-") || word == "-" ? next_positional(command, given) : nullptr) {
      given[option->name].values.push_back(word);
      given[option->name].what = option->metavar;
    } else {
      reject_later(word.empty() ? "\"\"" : word);
    }
  }
  if (help) return {{"help", {{"true"}, "--help"}}};
  if (!rejected.empty()) reject(command, rejected);
  return given;
}

}  // namespace spillway::trainer

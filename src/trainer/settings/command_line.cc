// Splits the arguments after a command's name into flags and their values. The option table says what the values mean.
#include <algorithm>
#include <cctype>
#include <string_view>

#include "base/error.h"
#include "trainer/settings/given.h"
#include "trainer/settings/suggest.h"

namespace spillway::trainer {
namespace {

bool is_truth_value(std::string word) {
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return word == "true" || word == "false";
}

// Throws the error for a word that is no flag and belongs to none. `before` is the flag that was read last, or null.
[[noreturn]] void reject_word(Command command, const std::string& word, const Option* before) {
  const std::string what = "[" + word + "] expected a flag, got a word that belongs to no flag: ";
  if (before != nullptr && before->field.kind == Kind::flag && is_truth_value(word))
    throw Error(ErrorCode::usage,
                what + "--" + before->name + " takes no value, leave " + word + " out (--" + before->name + "=false is off)");
  if (before != nullptr && before->field.repeatable)
    throw Error(ErrorCode::usage, what + "for several values repeat the flag (--" + before->name + " A --" + before->name + " B)");
  const CommandInfo& own = info(command);
  throw Error(ErrorCode::usage, what + "write spillway " + std::string(own.name) + " " + std::string(own.usage));
}

[[noreturn]] void reject(Command command, const std::string& word, const Option* before) {
  const std::string name = word.substr(0, word.find('='));
  if (name.starts_with("--")) throw Error(ErrorCode::usage, unknown_option(command, name.substr(2), true));
  if (name.starts_with("-")) throw Error(ErrorCode::usage, unknown_short_flag(command, name.substr(1)));
  reject_word(command, word, before);
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
  const Option *last = nullptr, *before_rejected = nullptr;  // the flag that was read last, and that one when the invalid word was read
  const auto reject_later = [&](const std::string& word) {
    if (!rejected.empty()) return;
    rejected = word;
    before_rejected = last;
  };
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
      last = option;
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
  if (!rejected.empty()) reject(command, rejected, before_rejected);
  return given;
}

}  // namespace spillway::trainer

#include "trainer/settings/suggest.h"

#include <algorithm>

#include "base/edit_distance.h"
#include "trainer/settings/foreign_names.h"

namespace spillway::trainer {
namespace {

std::string dashed(std::string_view name) {
  std::string text(name);
  std::ranges::replace(text, '_', '-');
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// Returns an option as a flag or as a JSON key. A value may follow the name: "precision bf16".
std::string shown(std::string_view option, bool flags) {
  if (flags) return "--" + std::string(option);
  const size_t space = std::min(option.find(' '), option.size());
  std::string key(option.substr(0, space));
  std::ranges::replace(key, '-', '_');
  return "\"" + key + "\"" + (space < option.size() ? ": \"" + std::string(option.substr(space + 1)) + "\"" : "");
}

std::string owners(std::string_view name) {
  std::string text;
  for (const CommandInfo& other : commands()) {
    if (find_option(other.command, name)) text += (text.empty() ? "" : ", ") + std::string(other.name);
  }
  return text;
}

// Returns what to write instead of the unknown option `name`.
std::string cure(Command command, std::string_view name, bool flags) {
  const std::string own(info(command).name), wanted = dashed(name);
  if (const Option* own_option = find_option(command, wanted)) {
    if (flags && own_option->positional) return "give the value without a flag: spillway " + own + " " + own_option->metavar;
    return "write " + shown(wanted, flags);
  }
  if (const std::string_view ours = option_for(command, wanted); !ours.empty()) return "the name here is " + shown(ours, flags);
  if (std::string advice = advice_for(command, wanted); !advice.empty()) return advice;
  if (const std::string others = owners(wanted); !others.empty()) return "it is an option of " + others;
  std::vector<std::string> known;
  for (const Option* option : options_of(command)) {
    if (!option->positional) known.push_back(option->name);
  }
  std::vector<std::string> close = nearest_words(wanted, known);
  std::ranges::transform(close, close.begin(), [&](const std::string& one) { return shown(one, flags); });
  return (close.empty() ? "" : "did you mean " + either_of(close) + "? ") + "spillway " + own + " --help=all lists all flags";
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& known) {
  const std::vector<std::string> words = nearest_words(word, known);
  return words.empty() ? "" : words.front();
}

std::string unknown_option(Command command, std::string_view name, bool flags) {
  const std::string given = flags ? "--" + std::string(name) : "\"" + std::string(name) + "\"";
  return "[" + given + "] unknown " + (flags ? "flag" : "key") + " of " + std::string(info(command).name) + ": " +
         cure(command, name, flags);
}

std::string unknown_short_flag(Command command, std::string_view name) {
  const std::string what = "[-" + std::string(name) + "] unknown flag: flags have two dashes; ";
  if (const std::string_view ours = option_for_short(command, name); !ours.empty()) return what + "the name here is " + shown(ours, true);
  if (name.size() > 2 || !option_for(command, dashed(name)).empty()) return what + cure(command, name, true);
  return what + "spillway " + std::string(info(command).name) + " --help lists them";
}

std::string unknown_command(std::string_view name) {
  std::vector<std::string> known;
  for (const CommandInfo& one : commands()) known.emplace_back(one.name);
  const std::string what = "[" + std::string(name) + "] unknown command: ";
  if (const std::string_view ours = command_for(dashed(name)); !ours.empty())
    return what + "the name here is " + std::string(ours) + "; spillway --help lists all commands";
  const std::vector<std::string> close = nearest_words(name, known);
  return what + (close.empty() ? "" : "did you mean " + either_of(close) + "? ") + "spillway --help lists all commands";
}

std::string value_hint(std::string_view option, const std::vector<std::string>& known, std::string_view given) {
  const std::string wanted = dashed(given);
  const auto knows = [&](const char* word) { return std::ranges::find(known, word) != known.end(); };
  if (knows("on") && knows("off")) {
    if (wanted == "true" || wanted == "yes" || wanted == "1") return ": write on";
    if (wanted == "false" || wanted == "no" || wanted == "0") return ": write off";
  }
  if (const std::string_view ours = value_for(option, wanted); !ours.empty()) return ": write " + std::string(ours);
  const std::vector<std::string> close = nearest_words(given, known);
  return close.empty() ? "" : ": did you mean " + either_of(close) + "?";
}

}  // namespace spillway::trainer

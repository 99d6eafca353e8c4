#include <algorithm>

#include "trainer/settings/given.h"
#include "trainer/settings/text.h"

namespace spillway::trainer {
namespace {

void check_choice(const Option& option, const std::string& text, const std::string& what) {
  if (std::ranges::find(option.field.choices, text) != option.field.choices.end()) return;
  const std::string unset = option.unset_word.empty() ? "" : " " + option.unset_word;
  refuse("[" + what + "] expected one of: " + spaced(option.field.choices) + unset + ", got \"" + text + "\"");
}

void check_range(const Option& option, const std::string& text, const std::string& what) {
  double value = 0;
  switch (option.field.kind) {
    case Kind::integer:
      value = static_cast<double>(parse_integer(text, what));
      break;
    case Kind::number:
      value = parse_number(text, what);
      break;
    case Kind::size:
      value = static_cast<double>(parse_size(text, what));
      break;
    case Kind::duration:
      value = static_cast<double>(parse_duration(text, what));
      break;
    default:
      return;
  }
  if (!option.range->holds(value)) refuse("[" + what + "] expected a value " + option.range->text() + ", got \"" + text + "\"");
}

void set(Settings& settings, const Option& option, const std::string& text, const std::string& what) {
  if (!option.unset_word.empty() && text == option.unset_word) return;
  if (option.field.kind == Kind::choice) check_choice(option, text, what);
  if (option.range) check_range(option, text, what);
  if (option.field.kind == Kind::text && text.empty() && !option.may_be_empty) refuse("[" + what + "] expected a value, got nothing");
  option.field.set(settings, text, what);
}

void apply(Settings& settings, const Option& option, const Given& given) {
  if (!option.field.repeatable && given.texts.size() > 1) {
    refuse("[" + given.what + "] expected one value, got " + std::to_string(given.texts.size()) + ": keep one of them");
  }
  if (!option.field.set) return;
  for (const std::string& text : given.texts) set(settings, option, text, given.what);
}

void check_together(Command command, const GivenMap& given) {
  for (const auto& [name, value] : given) {
    const Option* option = find_option(command, name);
    if (option == nullptr || option->exclusive.empty()) continue;
    const auto other = given.find(option->exclusive);
    if (other != given.end())
      refuse("[" + value.what + "] expected only one of this and " + other->second.what + ", got both: leave one out");
  }
}

void check_required(Command command, const GivenMap& given) {
  for (const Option* option : options_of(command)) {
    if (!option->required || given.contains(option->name)) continue;
    const std::string name = option->positional ? option->metavar : "--" + option->name;
    refuse("[" + name + "] expected " + option->help + "; got nothing, and " + std::string(info(command).name) + " needs it");
  }
}

}  // namespace

void check_values(Command command, const Settings& settings) {
  for (const Option* option : options_of(command)) {
    if (!option->field.get) continue;
    for (const std::string& text : option->field.get(settings).value_or(std::vector<std::string>())) {
      if (option->field.kind == Kind::choice) check_choice(*option, text, option->key());
      if (option->range) check_range(*option, text, option->key());
    }
  }
}

GivenMap merge(Command command, const GivenMap& flags, const GivenMap& file) {
  GivenMap all = flags;
  for (const auto& [name, value] : file) {
    const Option* option = find_option(command, name);
    if (option != nullptr && flags.contains(option->exclusive)) continue;
    all.try_emplace(name, value);
  }
  return all;
}

std::vector<std::string> train_words(const GivenMap& given) {
  std::vector<std::string> words;
  for (const auto& [name, value] : given) {
    const Option* option = find_option(Command::train, name);
    if (option == nullptr || option->set_by_launcher || !option->field.set) continue;
    for (const std::string& text : value.texts) {
      if (option->field.kind == Kind::flag && text != "true") continue;
      words.push_back("--" + name);
      if (option->field.kind != Kind::flag) words.push_back(text);
    }
  }
  return words;
}

std::vector<std::string> rehearsal_words(const GivenMap& given) {
  std::vector<std::string> words;
  for (const auto& [name, value] : given) {
    const Option* option = find_option(Command::train, name);
    if (option == nullptr || option->set_by_rehearsal || !option->field.set) continue;
    const bool flag = option->field.kind == Kind::flag;
    for (const std::string& text : value.texts) {
      if (!flag || text == "true") words.push_back("--" + name + (flag ? "" : "=" + text));
    }
  }
  return words;
}

Settings make_settings(Command command, const GivenMap& given, bool partial) {
  Settings settings = default_settings(command);
  for (const Option* option : options_of(command)) {
    const auto value = given.find(option->name);
    if (value != given.end()) apply(settings, *option, value->second);
  }
  if (auto* plan = std::get_if<PlanConfig>(&settings)) plan->train_words = train_words(given);
  check_together(command, given);
  if (!partial) check_required(command, given);
  return settings;
}

}  // namespace spillway::trainer

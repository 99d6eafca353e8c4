#include <algorithm>

#include "trainer/settings/given.h"
#include "trainer/settings/suggest.h"
#include "trainer/settings/text.h"

namespace spillway::trainer {
namespace {

bool has_choice(const Option& option, const std::string& name) {
  return std::ranges::find(option.field.choices, name) != option.field.choices.end();
}

// Returns the choice that a typed value names: 3 names "3", and true names "on". Returns any other value unchanged.
Value named_choice(const Option& option, const Value& value) {
  const auto* flag = value.as<bool>();
  const auto* number = value.as<i64>();
  if (flag && has_choice(option, "on") && has_choice(option, "off")) return *flag ? "on" : "off";
  if (number && has_choice(option, std::to_string(*number))) return std::to_string(*number);
  return value;
}

void check_choice(const Option& option, const Value& value, const std::string& what) {
  const auto* name = value.as<std::string>();
  if (name && has_choice(option, *name)) return;
  const std::string unset = option.unset_word.empty() ? "" : " " + option.unset_word;
  const std::string wanted = "one of: " + spaced(option.field.choices) + unset;
  if (!name) reject_kind(value, wanted, what);
  std::vector<std::string> known = option.field.choices;
  if (!option.unset_word.empty()) known.push_back(option.unset_word);
  refuse("[" + what + "] expected " + wanted + ", got " + shown(value) + value_hint(option.name, known, *name));
}

void check_range(const Option& option, const Value& given, const std::string& what) {
  double value = 0;
  switch (option.field.kind) {
    case Kind::integer:
      value = static_cast<double>(read_integer(given, what));
      break;
    case Kind::number:
      value = read_number(given, what);
      break;
    case Kind::size:
      value = static_cast<double>(read_size(given, what));
      break;
    case Kind::duration:
      value = static_cast<double>(read_duration(given, what));
      break;
    default:
      return;
  }
  if (!option.range->holds(value)) refuse("[" + what + "] expected a value " + option.range->text() + ", got " + shown(given));
}

void set(Settings& settings, const Option& option, const Value& given, const std::string& what) {
  if (!option.unset_word.empty() && given == Value(option.unset_word)) return;
  const Value value = option.field.kind == Kind::choice ? named_choice(option, given) : given;
  if (option.field.kind == Kind::choice) check_choice(option, value, what);
  if (option.range) check_range(option, value, what);
  if (option.field.kind == Kind::text && value == Value("") && !option.may_be_empty) refuse("[" + what + "] expected a value, got nothing");
  option.field.set(settings, value, what);
}

void apply(Settings& settings, const Option& option, const Given& given) {
  if (!option.field.repeatable && given.values.size() > 1) {
    refuse("[" + given.what + "] expected one value, got " + std::to_string(given.values.size()) + ": keep one of them");
  }
  if (!option.field.set) return;
  for (const Value& value : given.values) set(settings, option, value, given.what);
}

// Returns the values as a command line would give them, one text for each.
std::vector<std::string> texts_of(const Option& option, const Given& given) {
  std::vector<std::string> texts;
  for (const Value& value : given.values) {
    if (const auto* text = value.as<std::string>()) {
      texts.push_back(*text);
    } else if (option.field.set) {
      Settings settings = default_settings(Command::train);
      set(settings, option, value, given.what);
      texts.push_back(option.field.get(settings)->back());
    }
  }
  return texts;
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
    for (const std::string& text : texts_of(*option, value)) {
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
    for (const std::string& text : texts_of(*option, value)) {
      if (!flag || text == "true") words.push_back("--" + name + (flag ? "" : "=" + text));
    }
  }
  return words;
}

GivenMap given_values(Command command, const NamedValues& values) {
  GivenMap given;
  for (const auto& [key, value] : values) {
    std::string name = key;
    std::ranges::replace(name, '_', '-');
    const Option* option = find_option(command, name);
    if (option == nullptr) refuse(unknown_option(command, name, false));
    const auto* sequence = value.as<Value::Sequence>();
    const bool as_it_is = option->field.kind == Kind::composite && !option->field.repeatable && sequence && sequence->size() > 1;
    const Value::Sequence all = sequence && !as_it_is ? *sequence : Value::Sequence{value};
    if (all.empty()) continue;
    Given& to = given[name];
    to.what = key;
    to.values.insert(to.values.end(), all.begin(), all.end());
  }
  return given;
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

// Reads and writes configurations as JSON. The keys are the options' names with underscores, and the values are what the flags accept.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "trainer/settings/given.h"
#include "trainer/settings/json_object.h"
#include "trainer/settings/suggest.h"
#include "trainer/settings/text.h"

namespace spillway::trainer {
namespace {

using Json = nlohmann::ordered_json;

// kBytes is the key for text that is not UTF-8, because JSON can hold only UTF-8. Such text is written as an object with its bytes in
// hexadecimal: {"bytes": "636166e9"}.
constexpr const char* kBytes = "bytes";

Json text_value(const std::string& text) {
  if (is_utf8(text)) return text;
  std::string digits;
  for (const char c : text) digits += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return {{kBytes, digits}};
}

std::string bytes_of(const std::string& digits, const std::string& what) {
  std::string text;
  for (size_t at = 0; at + 2 <= digits.size(); at += 2) {
    unsigned byte = 0;
    const auto [end, error] = std::from_chars(digits.data() + at, digits.data() + at + 2, byte, 16);
    if (error != std::errc() || end != digits.data() + at + 2) break;
    text += static_cast<char>(byte);
  }
  if (text.size() * 2 != digits.size()) refuse("[" + what + "] expected two hexadecimal digits per byte, got \"" + digits + "\"");
  return text;
}

std::string shown(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

// Returns a JSON value as the text that the option's flag accepts.
std::string as_text(const Option& option, const Json& value, const std::string& what) {
  const bool numeric = option.field.kind == Kind::integer || option.field.kind == Kind::number;
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.size() == 1 && value.contains(kBytes) && value[kBytes].is_string())
    return bytes_of(value[kBytes].get<std::string>(), what);
  if (value.is_boolean() && option.field.kind == Kind::flag) return value.get<bool>() ? "true" : "false";
  if (value.is_number() && (numeric || option.field.kind != Kind::flag)) {
    // A bare number for a size or a time is passed on as text, so that the parser of sizes or times can say that the unit is
    // missing. A bare number for an option with choices is passed on too, and refused later because it is none of the choices.
    return option.field.kind == Kind::text ? refuse("[" + what + "] expected a string, got " + shown(value)), "" : shown(value);
  }
  const char* wanted = option.field.kind == Kind::flag ? "true or false" : numeric ? "a number" : "a string";
  refuse("[" + what + "] expected " + wanted + ", got " + shown(value));
}

// Joins the elements of an array with commas, as the option's flag accepts them: [0.9, 0.95] becomes "0.9,0.95" for --betas.
std::string joined(const Option& option, const Json& array, const std::string& what) {
  std::string text;
  for (const Json& one : array) text += (text.empty() ? "" : ",") + as_text(option, one, what);
  return text;
}

Given as_given(const Option& option, const Json& value, const std::string& what) {
  Given given{{}, what};
  if (value.is_array() && option.field.repeatable) {
    for (const Json& one : value) given.values.push_back(as_text(option, one, what));
  } else if (value.is_array() && option.field.kind == Kind::composite) {
    given.values.push_back(joined(option, value, what));
  } else {
    given.values.push_back(as_text(option, value, what));
  }
  return given;
}

Json value_of(const Option& option, const std::string& text) {
  switch (option.field.kind) {
    case Kind::integer:
      return parse_integer(text, option.name);
    case Kind::number:
      return parse_number(text, option.name);
    case Kind::flag:
      return text == "true";
    default:
      return text_value(text);
  }
}

Json value_of(const Option& option, const Settings& settings) {
  const auto texts = option.field.get(settings);
  if (!texts) return option.unset_word.empty() ? Json() : Json(option.unset_word);
  if (!option.field.repeatable) return value_of(option, texts->front());
  Json array = Json::array();
  for (const std::string& text : *texts) array.push_back(value_of(option, text));
  return array;
}

// Returns whether the value is an empty string, which means that the user did not set the option.
bool is_unsaid(const Json& value) { return value.is_string() && value.get<std::string>().empty(); }

// Clears the options that a resolved configuration makes redundant: --epochs if the steps are known, and the global batch size if
// the gradient accumulation is known. Each excludes its counterpart on a command line, so --config could not read a file with both.
TrainConfig without_alternatives(TrainConfig config) {
  if (config.steps) config.epochs.reset();
  if (config.gradient_accumulation_steps) config.global_batch_size.reset();
  return config;
}

// Returns the option's value as it is compared between two configurations to find settings that change a run's numbers.
Json number_value(const Option& option, const TrainConfig& config, const Settings& settings) {
  if (!option.counts_as) return value_of(option, settings);
  const auto text = option.counts_as(config);
  return text ? value_of(option, *text) : Json();
}

// Returns whether one of the two values counts as unset, such as a warm-up that is derived from the number of steps.
bool counts_as_unset(const NumberKey& before, const NumberKey& after) { return before.value == "null" || after.value == "null"; }

std::string option_name(std::string key) {
  std::ranges::replace(key, '_', '-');
  return key;
}

bool same_field(const std::string& key, const Settings& before, const Settings& after) {
  const Field& field = find_option(Command::train, option_name(key))->field;
  return field.get(before) == field.get(after);
}

}  // namespace

GivenMap read_config_text(Command command, const std::string& text, const std::string& where) {
  const Json object = parse_object(text, where, "--config");
  GivenMap given;
  for (const auto& [key, value] : object.items()) {
    const std::string name = option_name(key);
    const Option* option = find_option(command, name);
    if (option == nullptr || key != option->key()) refuse(unknown_option(command, key, false) + " (in " + where + ")");
    if (name == "config") refuse("[config in " + where + "] expected no configuration file named inside another one: leave this key out");
    if (!value.is_null()) given[name] = as_given(*option, value, key + " in " + where);
  }
  return given;
}

GivenMap read_config_file(Command command, const std::string& path) {
  const auto text = read_whole(path);
  if (!text) refuse("[--config] expected a JSON file, got " + path + ", which cannot be read");
  return read_config_text(command, *text, path);
}

std::string to_json(Command command, const Settings& settings) {
  Json object = Json::object();
  for (const Option* option : options_of(command)) {
    if (!option->field.get) continue;
    Json value = value_of(*option, settings);
    object[option->key()] = is_unsaid(value) ? Json() : std::move(value);
  }
  return object.dump(2) + "\n";
}

std::string to_json(const TrainConfig& config) { return to_json(Command::train, without_alternatives(config)); }

std::vector<NumberKey> number_keys(const TrainConfig& config) {
  const Settings settings = config;
  std::vector<NumberKey> keys;
  for (const Option* option : options_of(Command::train)) {
    if (!option->field.get || !option->changes_numbers || option->counted_by_another) continue;
    const Json value = number_value(*option, config, settings);
    keys.push_back({option->key(), value.dump(), option->absent_when_unset && (value.is_null() || value.empty())});
  }
  return keys;
}

TrainConfig run_config(const std::string& json) {
  try {
    const Settings settings = make_settings(Command::train, read_config_text(Command::train, json, "the run's config.json"), true);
    return std::get<TrainConfig>(settings);
  } catch (const Error& error) {
    throw Error(ErrorCode::data, std::string("[--resume] the run's config.json cannot be used: ") + error.what());
  }
}

std::vector<std::string> number_changes(const std::string& before_json, const TrainConfig& now, const std::vector<std::string>& same_keys) {
  const TrainConfig run = run_config(before_json);
  const Settings was = run, is = now;
  const std::vector<NumberKey> before = number_keys(run);
  std::vector<std::string> changes;
  const std::vector<NumberKey> after = number_keys(now);
  for (size_t i = 0; i < after.size(); ++i) {
    const bool spelled = std::ranges::find(same_keys, after[i].key) != same_keys.end();
    const bool same = spelled || before[i] == after[i] || (counts_as_unset(before[i], after[i]) && same_field(after[i].key, was, is));
    if (same || std::ranges::find(now.allow_change, after[i].key) != now.allow_change.end()) continue;
    changes.push_back(after[i].key + ": " + before[i].value + " -> " + after[i].value);
  }
  return changes;
}

}  // namespace spillway::trainer

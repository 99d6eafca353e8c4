// Tests values that a program gives with their types: each option of train takes a typed value, which means the same as the flag's text,
// and refuses a value of another type with its name.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "tests/trainer/support_trainer.h"
#include "trainer/settings/text.h"

namespace spillway::trainer::typed_values_test {
namespace {

struct Pair {
  std::string text;  // the value as the command line takes it
  Value value;       // the same value as a program gives it
};

// Returns the values of those options for which no generic value is valid. Composite options have different grammars, and some numbers must
// lie in ranges that exclude the values chosen below.
const std::map<std::string, Pair>& own_pairs() {
  static const std::map<std::string, Pair> all = {
      {"betas", {"0.8,0.95", Value::Sequence{0.8, 0.95}}},
      {"checkpoint-every", {"12", i64{12}}},
      {"trace-steps", {"5:9", Value::Sequence{i64{5}, i64{9}}}},
      {"place-parameters", {"host", "host"}},
      {"place-gradients", {"device=1GiB,nvme=rest", Value::Mapping{{"device", kGiB}, {"nvme", "rest"}}}},
      {"place-optimizer", {"device=2GiB,host=rest", Value::Mapping{{"host", "rest"}, {"device", "2GiB"}}}},
      {"place-activations", {"nvme", Value::Mapping{{"nvme", "rest"}}}},
      {"device", {"cpu", "cpu"}},
      {"attention", {"cudnn", "cudnn"}},  // cudnn is chosen because "auto" means "own", which is the default
      {"nvme", {"/scratch:1GiB", "/scratch:1GiB"}},
      {"resume", {"never", "never"}},
      {"endurance", {"600TBW", "600TBW"}},
  };
  return all;
}

// Returns a value of the option that differs from its default.
Pair other_than_default(const Option& option) {
  if (const auto own = own_pairs().find(option.name); own != own_pairs().end()) return own->second;
  switch (option.field.kind) {
    case Kind::integer:
      return {"7", i64{7}};
    case Kind::number:
      return {"0.25", 0.25};
    case Kind::flag:
      return {"true", true};
    case Kind::size:
      return {"3MiB", 3 * kMiB};
    case Kind::duration:
      return {"90s", i64{90}};
    case Kind::choice: {
      const auto unset = option.field.get(default_settings(Command::train)).value_or(std::vector<std::string>{""}).front();
      const std::string name = *std::ranges::find_if(option.field.choices, [&](const std::string& one) { return one != unset; });
      if (name == "off" || name == "on") return {name, name == "on"};
      const bool digits = name.find_first_not_of("0123456789") == name.npos;
      return {name, digits ? Value(parse_integer(name, option.name)) : Value(name)};
    }
    default:
      return {"some-text", "some-text"};
  }
}

std::string config_of(const GivenMap& given) { return to_json(std::get<TrainConfig>(make_settings(Command::train, given, true))); }

std::string config_of(const std::string& key, const Value& value) { return config_of(given_values(Command::train, {{key, value}})); }

// Returns the option's default as a typed value.
Value typed_default(const Option& option, const std::string& text) {
  switch (option.field.kind) {
    case Kind::integer:
      return parse_integer(text, option.name);
    case Kind::number:
      return parse_number(text, option.name);
    case Kind::flag:
      return text == "true";
    case Kind::size:
      return parse_size(text, option.name);
    case Kind::duration:
      return parse_duration(text, option.name);
    case Kind::choice:
      return text == "on" || text == "off" ? Value(text == "on") : Value(text);
    default:
      return text;
  }
}

TEST(TypedValues, EveryOptionOfTrainTakesOneThatMeansItsText) {
  const std::string plain = to_json(TrainConfig{});
  for (const Option* option : options_of(Command::train)) {
    if (!option->field.set) continue;
    const Pair other = other_than_default(*option);
    const std::string typed = config_of(option->key(), other.value);
    EXPECT_EQ(typed, config_of(parse_flags(Command::train, {"--" + option->name + "=" + other.text}))) << option->name;
    EXPECT_EQ(typed, config_of(option->key(), other.text)) << option->name;
    EXPECT_NE(typed, plain) << option->name << " has this value by default";
    const auto texts = option->field.get(default_settings(Command::train));
    if (!texts || texts->empty() || texts->front().empty()) continue;
    EXPECT_EQ(config_of(option->key(), typed_default(*option, texts->front())), plain) << option->name;
  }
}

TEST(TypedValues, SequencesRepeatAnOption) {
  const GivenMap given = given_values(Command::train, {{"data", Value::Sequence{"a", "b"}}, {"freeze", Value::Sequence{}}});
  EXPECT_EQ(config_of(given), config_of(parse_flags(Command::train, {"--data", "a", "--data", "b"})));
  EXPECT_FALSE(given.contains("freeze"));
  EXPECT_EQ(config_of("steps", Value::Sequence{i64{3}}), config_of("steps", i64{3}));
}

// Checks words of a command line that are made from typed values: those of a slurm job, and those after plan's "to train like this".
TEST(TypedValues, BecomeWordsOfACommandLine) {
  const GivenMap given = given_values(Command::train, {{"device_memory", 3 * kGiB},
                                                       {"learning_rate", 0.001},
                                                       {"packing", false},
                                                       {"place_optimizer", Value::Mapping{{"device", kGiB}, {"nvme", "rest"}}},
                                                       {"betas", Value::Sequence{0.8, 0.9}},
                                                       {"data", Value::Sequence{"a", "b"}},
                                                       {"profile", true},
                                                       {"tf32_conv", false}});
  EXPECT_EQ(train_words(given),
            (std::vector<std::string>{"--betas", "0.8,0.9", "--data", "a", "--data", "b", "--device-memory", "3GiB", "--learning-rate",
                                      "0.001", "--packing", "off", "--place-optimizer", "device=1GiB,nvme=rest", "--profile"}));
  EXPECT_EQ(config_of(parse_flags(Command::train, train_words(given))), config_of(given));
}

TEST(TypedValues, WrongTypesAreRefusedByName) {
  const std::vector<std::pair<NamedValues, std::string>> all = {
      {{{"steps", 0.5}}, "[steps] expected a whole number, got 0.5"},
      {{{"steps", true}}, "[steps] expected a whole number, got true"},
      {{{"learning_rate", true}}, "[learning_rate] expected a number such as 3e-4 or 0.1, got true"},
      {{{"from_scratch", i64{1}}}, "[from_scratch] expected true or false, got 1"},
      {{{"device_memory", 1.5}}, "[device_memory] expected a size with its unit such as 640MiB, or a whole number of bytes, got 1.5"},
      {{{"time_limit", false}}, "[time_limit] expected a time with its unit such as 30m, or a whole number of seconds, got false"},
      {{{"model", i64{3}}}, "[model] expected text, got 3"},
      {{{"optimizer", i64{3}}}, "[optimizer] expected one of: adamw"},
      {{{"betas", 0.9}}, "[betas] expected two numbers such as 0.9,0.95, got 0.9"},
      {{{"place_optimizer", true}}, "[place_optimizer] expected device, host, nvme, auto"},
      {{{"place_optimizer", Value::Mapping{{"host", 0.5}, {"nvme", "rest"}}}}, "[place_optimizer] expected a size"},
      {{{"checkpoint_every", 0.5}}, "[checkpoint_every] expected steps (500)"},
      {{{"trace_steps", i64{3}}}, "[trace_steps] expected first:last"},
      {{{"data", Value::Sequence{Value::Sequence{"a"}}}}, "[data] expected text, got [\"a\"]"}};
  for (const auto& [values, message] : all) {
    try {
      make_settings(Command::train, given_values(Command::train, values), true);
      ADD_FAILURE() << message;
    } catch (const WrongKind& error) {
      EXPECT_EQ(std::string(error.what()).substr(0, message.size()), message);
      EXPECT_EQ(error.code(), ErrorCode::usage);
    }
  }
}

TEST(TypedValues, WrongValuesAreRefusedAsOnTheCommandLine) {
  const std::vector<std::pair<NamedValues, std::string>> all = {
      {{{"steps", i64{0}}}, "[steps] expected a value at least 1, got 0"},
      {{{"steps", Value::Sequence{i64{1}, i64{2}}}}, "[steps] expected one value, got 2: keep one of them"},
      {{{"learning_rate", -1.0}}, "[learning_rate] expected a value at least 0, got -1"},
      {{{"learning_rate", std::numeric_limits<double>::quiet_NaN()}}, "[learning_rate] expected a number such as 3e-4 or 0.1, got nan"},
      {{{"device_memory", i64{-1}}}, "[device_memory] expected a size"},
      {{{"zero_stage", i64{4}}}, "[zero_stage] expected one of: 0 1 2 3 auto, got 4"},
      {{{"place_optimizer", Value::Mapping{{"host", kGiB}}}}, "[place_optimizer] expected device, host, nvme, auto"},
      {{{"place_optimizer", Value::Mapping{{"gpu", "rest"}}}}, "[place_optimizer] expected device, host, nvme, auto"},
      {{{"betas", Value::Sequence{0.9, 1.0}}}, "[betas] expected both numbers to be in [0, 1), got [0.9, 1]"},
      {{{"betas", Value::Sequence{0.9, "b"}}}, "[betas] expected a number"},
      {{{"trace_steps", Value::Sequence{i64{6}, i64{3}}}}, "[trace_steps] expected first:last such as 3:6, counted from 1, got [6, 3]"},
      {{{"steps", i64{3}}, {"epochs", 2.0}}, "[epochs] expected only one of this and steps, got both: leave one out"},
      {{{"stepz", i64{3}}}, "[\"stepz\"] unknown key of train: did you mean \"steps\"?"},
      {{{"model", ""}}, "[model] expected a value, got nothing"}};
  for (const auto& [values, message] : all) {
    const std::string said = message_of([&] { make_settings(Command::train, given_values(Command::train, values), true); });
    EXPECT_EQ(said.substr(0, message.size()), message);
  }
}

}  // namespace
}  // namespace spillway::trainer::typed_values_test

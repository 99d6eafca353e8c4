// Tests the only function of the program that parses JSON. Accepted text gives what the JSON library makes
// of it. Text that would overflow the stack or exhaust memory is refused, whether it is JSON or not.
#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/types.h"

namespace spillway::json_test {
namespace {

using testing::HasSubstr;

std::string repeated(std::string_view text, size_t times) {
  std::string all;
  for (size_t i = 0; i < times; ++i) all += text;
  return all;
}

std::string fault_of(const std::string& text, RepeatedKeys keys = RepeatedKeys::keep_last) {
  JsonFault fault;
  EXPECT_TRUE(parse_json(text, &fault, keys).is_discarded());
  EXPECT_TRUE(parse_ordered_json(text, nullptr, keys).is_discarded());
  return fault.in_words(text);
}

TEST(Json, IsWhatTheLibraryMakesOfIt) {
  const std::string text = R"({"b": [1, -2, 3.5, true, null, "x\"[[[{"], "a": {"c": 18446744073709551615}})";
  EXPECT_EQ(parse_json(text), nlohmann::json::parse(text));
  EXPECT_EQ(parse_ordered_json(text).dump(), nlohmann::ordered_json::parse(text).dump());
  EXPECT_EQ(parse_ordered_json(R"({"a": 1, "a": 2})"), nlohmann::ordered_json::parse(R"({"a": 1, "a": 2})"));
}

TEST(Json, SaysWhereItGoesWrong) {
  EXPECT_EQ(fault_of("{\"a\": 1,\n \"b\": }"), "expected JSON, got a syntax error in line 2, column 7: the text may be truncated");
  EXPECT_THAT(fault_of(""), HasSubstr("line 1, column 1"));
  EXPECT_THAT(fault_of("\"\xff\""), HasSubstr("expected JSON"));
}

TEST(Json, ANumberThatNoDoubleHoldsIsRefused) {
  EXPECT_EQ(fault_of("[1e999]"), "expected numbers of at most 1.8e308, got a larger one");
  EXPECT_EQ(parse_json("[1e308]")[0].get<double>(), 1e308);
  EXPECT_EQ(parse_json("[1e-999]")[0].get<double>(), 0);
}

TEST(Json, DeepNestingIsRefusedBeforeItIsParsed) {
  const auto nested = [](size_t depth) { return repeated("[", depth) + repeated("]", depth); };
  EXPECT_FALSE(parse_json(nested(kMostJsonDepth)).is_discarded());
  EXPECT_EQ(fault_of(nested(kMostJsonDepth + 1)), "expected values nested at most 200 deep, got deeper ones");
  EXPECT_THAT(fault_of(nested(1'000'000)), HasSubstr("nested at most"));
  EXPECT_THAT(fault_of(repeated("{\"a\":", 1'000'000)), HasSubstr("nested at most"));
  EXPECT_FALSE(parse_json("\"" + repeated("[", 1000) + "\"").is_discarded()) << "brackets in a text do not nest";
}

TEST(Json, ATreeOutOfProportionIsRefused) {
  EXPECT_THAT(fault_of("[" + repeated("[],", 8 << 20) + "1]"), HasSubstr("of memory"));
  EXPECT_FALSE(parse_json("[" + repeated("12345,", 1 << 20) + "1]").is_discarded());
}

TEST(Json, AnOrderedObjectOfManyKeysIsRefused) {
  const auto keys = [](int count) {
    std::string text = "[{";
    for (int k = 0; k < count; ++k) text += (k > 0 ? ",\"" : "\"") + std::to_string(k) + "\":[{\"a:b\":1}]";
    return text + "}]";
  };
  EXPECT_EQ(parse_json(keys(100'000))[0].size(), 100'000u);
  EXPECT_FALSE(parse_ordered_json(keys(10'000)).is_discarded());
  JsonFault fault;
  EXPECT_TRUE(parse_ordered_json(keys(10'001), &fault).is_discarded());
  EXPECT_EQ(fault.expected, "objects of at most 10000 keys, got an object with more");
}

TEST(Json, ARepeatedKeyIsRefusedWhereThatIsWanted) {
  EXPECT_EQ(fault_of(R"({"a": {"b": 1, "b": 2}})", RepeatedKeys::refuse), "expected each key once, got `b` twice in an object");
  EXPECT_EQ(parse_json(R"([{"a": 1}, {"a": {"a": 2}}])", nullptr, RepeatedKeys::refuse),
            nlohmann::json::parse(R"([{"a":1},{"a":{"a":2}}])"));
}

}  // namespace
}  // namespace spillway::json_test

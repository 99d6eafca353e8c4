// Tests integer arithmetic in chat templates. The result is what Python gives, or an error if a number
// needs more than 64 bits. It is never a wrong number and never a crash. References are Jinja's
// results (arithmetic.json, made by tests/peers/chat_templates.py --write) and 128-bit arithmetic.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "data/template/chat_template.h"
#include "tests/data/template/support_chat.h"

namespace spillway::data::chat_arithmetic_test {
namespace {

using test::Json, test::read_json;
using ::testing::HasSubstr;
using Random = std::mt19937_64;
__extension__ typedef __int128 i128;

struct Outcome {
  std::string text, error;  // the result of rendering, or the message of the error; the other is empty
};

Outcome render(const std::string& source) {
  try {
    return {ChatTemplate(source, "t").render(Json::parse(R"([{"role": "user", "content": "x"}])"), {}, false, 0).text, ""};
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::data) << source;
    return {"", error.what()};
  }
}

TEST(ChatArithmetic, IsWhatJinjaGivesOrBeyond64Bits) {
  int texts = 0, beyond = 0;
  for (const Json& tested : read_json("arithmetic.json")) {
    const std::string source = tested["template"];
    const Outcome got = render(source);
    if (tested.contains("error")) {
      EXPECT_NE(got.error, "") << source;
    } else if (tested.contains("text") && got.error.empty()) {
      EXPECT_EQ(got.text, tested["text"].get<std::string>()) << source;
      ++texts;
    } else {  // Python needed more than 64 bits for the result or an intermediate result.
      EXPECT_THAT(got.error, HasSubstr("64 bits")) << source;
      ++beyond;
    }
  }
  EXPECT_GT(texts, 580);
  EXPECT_LT(beyond, 90);
}

size_t below(Random& random, size_t n) { return random() % n; }

bool fits(i128 n) { return n == static_cast<i64>(n); }

i64 any_whole(Random& random) {
  constexpr i64 kMost = std::numeric_limits<i64>::max();
  constexpr std::array<i64, 12> kEdges = {0,         1,    2, 3, 7, 10, i64{1} << 31, i64{1} << 32, (i64{1} << 53) + 1, i64{1} << 62,
                                          kMost - 1, kMost};
  const i64 n = below(random, 2) == 0 ? kEdges[below(random, kEdges.size())] : static_cast<i64>(random() >> (1 + below(random, 63)));
  return below(random, 2) == 0 ? n : -n - static_cast<i64>(below(random, 2));
}

std::string written(i64 n) {
  if (n >= 0) return std::to_string(n);
  if (n == std::numeric_limits<i64>::min()) return "(-9223372036854775807 - 1)";
  return "(" + std::to_string(n) + ")";
}

struct Expression {
  std::string text;
  std::optional<i128> value;  // the value; empty if Python refuses the expression or an intermediate result exceeds 64 bits
};

// Returns the quotient as Python does, rounded down, and the remainder, which has the divisor's sign.
std::pair<i128, i128> divided(i128 a, i128 b) {
  i128 quotient = a / b, rest = a % b;
  if (rest != 0 && (rest < 0) != (b < 0)) {
    rest += b;
    --quotient;
  }
  return {quotient, rest};
}

std::optional<i128> applied(size_t sign, i128 a, i128 b) {
  i128 result = 0;
  switch (sign) {
    case 0:
      result = a + b;
      break;
    case 1:
      result = a - b;
      break;
    case 2:
      result = a * b;
      break;
    default:
      if (b == 0) return {};
      result = sign == 3 ? divided(a, b).first : divided(a, b).second;
  }
  return fits(result) ? std::optional(result) : std::nullopt;
}

Expression any_expression(Random& random, int depth) {
  constexpr std::array kSigns = {" + ", " - ", " * ", " // ", " % "};
  if (depth == 0 || below(random, 5) == 0) {
    const i64 n = any_whole(random);
    return {written(n), n};
  }
  const Expression left = any_expression(random, depth - 1);
  if (below(random, 6) == 0) {
    const bool absolute = below(random, 2) == 0;
    std::optional<i128> value = left.value;
    if (value && (!absolute || *value < 0)) value = fits(-*value) ? std::optional(-*value) : std::nullopt;
    return {absolute ? "(" + left.text + " | abs)" : "(-" + left.text + ")", value};
  }
  const Expression right = any_expression(random, depth - 1);
  const size_t sign = below(random, kSigns.size());
  const bool both = left.value && right.value;
  return {"(" + left.text + kSigns[sign] + right.text + ")", both ? applied(sign, *left.value, *right.value) : std::nullopt};
}

void compare_expressions(Random& random) {
  const Expression expression = any_expression(random, 3);
  const Outcome got = render("{{ " + expression.text + " }}");
  if (expression.value) {
    EXPECT_EQ(got.text, std::to_string(static_cast<i64>(*expression.value))) << expression.text << "\n" << got.error;
  } else {
    EXPECT_NE(got.error, "") << expression.text;
  }
}

// Returns the indices that a Python slice selects from `count` elements, found by stepping through all of them.
std::vector<i128> places(i128 count, std::optional<i64> start, std::optional<i64> stop, i64 step) {
  const i128 low = step < 0 ? -1 : 0, high = step < 0 ? count - 1 : count;
  const auto clamped = [&](i64 i) { return std::clamp<i128>(i < 0 ? i + count : i, low, high); };
  const i128 first = start ? clamped(*start) : step < 0 ? high : low, end = stop ? clamped(*stop) : step < 0 ? low : high;
  std::vector<i128> all;
  for (i128 i = first; step < 0 ? i > end : i < end; i += step) all.push_back(i);
  return all;
}

// Compares a random range, a slice of it, and whether a number is in it, with results in 128-bit arithmetic.
void compare_ranges(Random& random) {
  const i64 start = any_whole(random), stop = any_whole(random), step = below(random, 3) == 0 ? 1 : any_whole(random);
  const i128 distance = step > 0 ? static_cast<i128>(stop) - start : static_cast<i128>(start) - stop;
  const i128 stride = step > 0 ? static_cast<i128>(step) : -static_cast<i128>(step);
  const i128 size = step == 0 || distance <= 0 ? 0 : (distance - 1) / stride + 1;
  const std::string range = "range(" + written(start) + ", " + written(stop) + ", " + written(step) + ")";
  const Outcome length = render("{{ " + range + " | length }}");
  if (step == 0 || size > 100'000) {
    EXPECT_NE(length.error, "") << range;
    return;
  }
  EXPECT_EQ(length.text, std::to_string(static_cast<i64>(size))) << range << length.error;
  const i64 sought = below(random, 2) == 0 && size > 0 ? static_cast<i64>(start + step * static_cast<i128>(below(random, size_t(size))))
                                                       : any_whole(random);
  const bool inside = size > 0 && (static_cast<i128>(sought) - start) % step == 0 && (static_cast<i128>(sought) - start) / step >= 0 &&
                      (static_cast<i128>(sought) - start) / step < size;
  EXPECT_EQ(render("{{ " + written(sought) + " in " + range + " }}").text, inside ? "True" : "False") << range << sought;

  const auto bound = [&]() -> std::optional<i64> {
    if (below(random, 3) == 0) return {};
    return below(random, 2) == 0 ? any_whole(random) : static_cast<i64>(below(random, 7)) - 3;
  };
  const auto low = bound(), high = bound();
  i64 stride_of_slice = bound().value_or(1);
  if (stride_of_slice == 0) stride_of_slice = 1;
  const auto shown = [](std::optional<i64> n) { return n ? written(*n) : std::string(); };
  const std::string slice = range + "[" + shown(low) + ":" + shown(high) + ":" + written(stride_of_slice) + "]";
  const Outcome got = render("{{ " + slice + " | join(' ') }}");
  std::string expected;
  for (const i128 at : places(size, low, high, stride_of_slice)) {
    expected += (expected.empty() ? "" : " ") + std::to_string(static_cast<i64>(start + at * step));
  }
  // Rendering also computes the end of the slice, which may exceed 64 bits and is then an error.
  if (got.error.empty()) {
    EXPECT_EQ(got.text, expected) << slice;
  } else {
    EXPECT_THAT(got.error, HasSubstr("64 bits")) << slice;
  }
}

void compare(u64 seed, int cases) {
  Random random(seed);
  for (int i = 0; i < cases; ++i) {
    compare_expressions(random);
    compare_ranges(random);
  }
}

TEST(ChatArithmetic, IsThatOf128Bits) { compare(1, 1000); }

TEST(SoakChatArithmetic, IsThatOf128Bits) { compare(2, 100'000); }

}  // namespace
}  // namespace spillway::data::chat_arithmetic_test

// Implements the filters on numbers, and filters that convert text to numbers as Python's int() and float() do.
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "data/template/values/builtins.h"
#include "data/template/values/operators.h"
#include "data/text/code_points.h"

namespace spillway::data::chat {
namespace {

// Returns the text without surrounding white space and without the underscores between digits. Returns nothing if an underscore is where
// Python does not allow one.
std::optional<std::string> plain_digits(std::string_view text) {
  std::string plain;
  const std::string_view inside = strip(text, 0);
  const auto is_alnum = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  for (size_t i = 0; i < inside.size(); ++i) {
    if (inside[i] != '_') {
      plain += inside[i];
    } else if (i == 0 || i + 1 == inside.size() || !is_alnum(inside[i - 1]) || !is_alnum(inside[i + 1])) {
      return {};
    }
  }
  return plain;
}

std::optional<i64> whole_of(Run& run, std::string_view text, i64 base) {
  run.spend_letters(text.size());
  const auto plain = plain_digits(text);
  if (!plain) return {};
  std::string_view digits = *plain;
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.remove_prefix(1);
  const char letter = digits.size() > 2 && digits[0] == '0' ? static_cast<char>(digits[1] | 0x20) : '\0';
  const i64 named = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
  if (named != 0 && (base == 0 || base == named)) {
    digits.remove_prefix(2);
    base = named;
  } else if (base == 0) {
    if (digits.starts_with('0') && digits.find_first_not_of('0') != digits.npos) return {};
    base = 10;
  }
  if (base < 2 || base > 36) return {};
  u64 n = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), n, static_cast<int>(base));
  if (digits.empty() || end != digits.data() + digits.size() || error == std::errc::invalid_argument) return {};
  constexpr u64 kMost = u64{1} << 63;
  if (error != std::errc() || n > (negative ? kMost : kMost - 1))
    run.fail("expected whole numbers that fit in 64 bits, got a larger one for int");
  return static_cast<i64>(negative ? u64{0} - n : n);
}

std::optional<double> real_of(Run& run, std::string_view text) {
  run.spend_letters(text.size());
  const auto plain = plain_digits(text);
  if (!plain || plain->empty()) return {};
  constexpr size_t kLongestWord = 9;  // the length of "-infinity", the longest word that Python's float() accepts
  const std::string word = lower(std::string_view(*plain).substr(0, kLongestWord + 1));
  const std::string_view unsigned_word = std::string_view(word).substr(word[0] == '-' || word[0] == '+' ? 1 : 0);
  const bool named = unsigned_word == "inf" || unsigned_word == "infinity" || unsigned_word == "nan";
  if (!named && plain->find_first_not_of("0123456789.eE+-") != plain->npos) return {};
  char* end = nullptr;
  const double d = std::strtod(plain->c_str(), &end);
  return end == plain->c_str() + plain->size() ? std::optional(d) : std::nullopt;
}

std::optional<i64> cut_to_whole(Run& run, double d) {
  if (std::isnan(d)) return {};
  if (!fits_64_bits(d)) run.fail("expected whole numbers that fit in 64 bits, got a larger one for int");
  return static_cast<i64>(d);
}

Value to_whole(Run& run, const Bound& a) {
  const Value& value = a.at(0);
  const Value otherwise = a[1] ? a.at(1) : Value(i64{0});
  if (value.is_undefined()) run.fail("expected a value for int, got an undefined one");
  if (value.whole()) return *value.whole();
  std::optional<i64> n;
  if (value.real()) n = cut_to_whole(run, *value.real());
  if (value.text()) {
    n = whole_of(run, *value.text(), a.whole(run, 2, 10));
    if (const auto d = n ? std::nullopt : real_of(run, *value.text()); d && std::isfinite(*d)) n = cut_to_whole(run, *d);
  }
  return n ? Value(*n) : otherwise;
}

Value to_real(Run& run, const Bound& a) {
  const Value& value = a.at(0);
  if (value.is_undefined()) run.fail("expected a value for float, got an undefined one");
  std::optional<double> d = value.number();
  if (value.text()) d = real_of(run, *value.text());
  return d ? Value(*d) : a[1] ? a.at(1) : Value(0.0);
}

Value absolute(Run& run, const Bound& a) {
  const Value& value = a.at(0);
  if (!value.number()) run.fail("bad operand type for abs(): '" + type_name(value) + "'");
  if (value.real()) return std::fabs(*value.real());
  return *value.whole() < 0 ? negate(run, value) : Value(*value.whole());
}

// Rounds as Python's round() does: from the exact value, with ties to the even digit.
Value round_common(Run& run, const Value& value, i64 digits) {
  if (value.whole()) {
    if (digits < 0) run.fail("expected a precision of at least 0 for whole numbers, got " + std::to_string(digits));
    return *value.whole();
  }
  const double d = *value.real();
  if (!std::isfinite(d) || digits > 320) return d;
  if (digits < 0) run.fail("expected a precision of at least 0, got " + std::to_string(digits));
  std::array<char, 700> text;
  std::snprintf(text.data(), text.size(), "%.*f", static_cast<int>(digits), d);
  return std::strtod(text.data(), nullptr);
}

Value round(Run& run, const Bound& a) {
  const Value& value = a.at(0);
  if (!value.number()) run.fail("expected a number to round, got '" + type_name(value) + "'");
  const String method = a.text(run, 2, "common");
  const Value precision = a.whole(run, 1, 0);
  if (method == "common") return round_common(run, value, *precision.whole());
  if (method != "ceil" && method != "floor") run.fail("method must be common, ceil or floor");
  const Value scale = apply(run, Operator::power, i64{10}, precision);
  const Value scaled = apply(run, Operator::multiply, value, scale);
  Value whole = scaled;
  if (scaled.real()) {
    const double d = method == "ceil" ? std::ceil(*scaled.real()) : std::floor(*scaled.real());
    if (!fits_64_bits(d)) run.fail("expected whole numbers that fit in 64 bits, got a larger one for round");
    whole = static_cast<i64>(d);
  }
  return apply(run, Operator::divide, whole, scale);
}

const Builtin kNumberFilters[] = {
    {"abs", {""}, 1, absolute},
    {"float", {"value", "default"}, 1, to_real},
    {"int", {"value", "default", "base"}, 1, to_whole},
    {"round", {"value", "precision", "method"}, 1, round},
};

}  // namespace

std::span<const Builtin> number_filters() { return kNumberFilters; }

}  // namespace spillway::data::chat

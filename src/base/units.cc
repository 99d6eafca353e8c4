#include "base/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "base/error.h"

namespace spillway {
namespace {

struct Unit {
  std::string_view name;  // name of the unit in lower case
  i64 size;
};

constexpr i64 kKB = 1000, kMB = 1000 * kKB, kGB = 1000 * kMB, kTB = 1000 * kGB, kTiB = 1024 * kGiB;
constexpr std::array kByteUnits = {Unit{"b", 1},      Unit{"k", kKiB},   Unit{"kib", kKiB}, Unit{"kb", kKB},   Unit{"m", kMiB},
                                   Unit{"mib", kMiB}, Unit{"mb", kMB},   Unit{"g", kGiB},   Unit{"gib", kGiB}, Unit{"gb", kGB},
                                   Unit{"t", kTiB},   Unit{"tib", kTiB}, Unit{"tb", kTB}};
constexpr std::array kTimeUnits = {Unit{"s", 1}, Unit{"m", 60}, Unit{"h", 3600}, Unit{"d", 86400}};

// Words that people write for kTimeUnits, whose names are the first letters.
constexpr std::array<std::string_view, 14> kTimeWords = {"sec",     "secs", "second", "seconds", "min", "mins", "minute",
                                                         "minutes", "hour", "hours",  "hr",      "hrs", "day",  "days"};

// `write` is the right spelling, if there is one.
[[noreturn]] void reject(std::string_view what, std::string_view text, std::string_view wanted, const std::string& write = "") {
  throw Error(ErrorCode::usage, fmt::format("[{}] expected {}, got \"{}\"{}", what, wanted, text, write.empty() ? "" : ": write " + write));
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

// Removes the digits (and any decimal points) from the front of `text` and returns them.
std::string_view take_number(std::string_view& text) {
  const size_t n = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string_view number = text.substr(0, n);
  text.remove_prefix(n);
  return number;
}

std::optional<i64> times(std::string_view number, i64 unit) {
  const char* end = number.data() + number.size();
  i64 whole = 0;
  if (const auto r = std::from_chars(number.data(), end, whole); r.ec == std::errc() && r.ptr == end) {
    return whole <= std::numeric_limits<i64>::max() / unit ? std::optional(whole * unit) : std::nullopt;
  }
  double value = 0;
  if (const auto r = std::from_chars(number.data(), end, value); r.ec != std::errc() || r.ptr != end) return std::nullopt;
  value = std::nearbyint(value * static_cast<double>(unit));
  return value < 0x1p63 ? std::optional(static_cast<i64>(value)) : std::nullopt;
}

// Converts "1-12:00:00" or "12:00:00" to seconds.
std::optional<i64> clock_s(std::string_view text) {
  i64 days = 0;
  const auto number = [](std::string_view digits, i64& value) {
    const auto r = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return !digits.empty() && r.ec == std::errc() && r.ptr == digits.data() + digits.size() && value >= 0 && value <= 1'000'000;
  };
  if (const size_t dash = text.find('-'); dash != text.npos) {
    if (!number(text.substr(0, dash), days)) return std::nullopt;
    text.remove_prefix(dash + 1);
  }
  std::array<i64, 3> hms{};
  for (size_t i = 0; i < 3; ++i) {
    const size_t colon = i < 2 ? text.find(':') : text.size();
    if (colon == text.npos || !number(text.substr(0, colon), hms[i])) return std::nullopt;
    text.remove_prefix(std::min(colon + 1, text.size()));
  }
  if (hms[1] >= 60 || hms[2] >= 60) return std::nullopt;
  return ((days * 24 + hms[0]) * 60 + hms[1]) * 60 + hms[2];
}

}  // namespace

i64 parse_bytes(std::string_view text, std::string_view what) {
  constexpr std::string_view kWanted = "a size with its unit, for example 640MiB, 1.5G or 100GB";
  std::string_view rest = text;
  const std::string_view number = take_number(rest);
  if (rest.starts_with(' ')) rest.remove_prefix(1);
  const auto unit = std::ranges::find(kByteUnits, lower(rest), &Unit::name);
  if (number.empty()) reject(what, text, kWanted);
  if (unit == kByteUnits.end()) {  // as "GBs" does
    const std::string_view one = rest.ends_with('s') ? rest.substr(0, rest.size() - 1) : rest;
    const bool known = !one.empty() && std::ranges::find(kByteUnits, lower(one), &Unit::name) != kByteUnits.end();
    reject(what, text, kWanted, known ? fmt::format("{}{}", number, one) : "");
  }
  const auto bytes = times(number, unit->size);
  if (!bytes) reject(what, text, kWanted);
  return *bytes;
}

i64 parse_duration_s(std::string_view text, std::string_view what) {
  constexpr std::string_view kWanted = "a time such as 30s, 30m, 2h or 1-12:00:00";
  if (text.find(':') != text.npos) {
    const auto seconds = clock_s(text);
    if (!seconds) reject(what, text, kWanted);
    return *seconds;
  }
  std::string_view rest = text;
  const std::string_view number = take_number(rest);
  const auto unit = std::ranges::find(kTimeUnits, lower(rest), &Unit::name);
  if (number.empty()) reject(what, text, kWanted);
  if (unit == kTimeUnits.end()) {
    const std::string word = lower(rest.substr(std::min(rest.find_first_not_of(' '), rest.size())));
    const bool known = std::ranges::find(kTimeWords, word) != kTimeWords.end();
    reject(what, text, kWanted, known ? fmt::format("{}{}", number, word[0]) : "");
  }
  const auto seconds = times(number, unit->size);
  if (!seconds) reject(what, text, kWanted);
  return *seconds;
}

std::string format_bytes(i64 bytes) {
  if (bytes < 0) return "-" + format_bytes(bytes == std::numeric_limits<i64>::min() ? std::numeric_limits<i64>::max() : -bytes);
  if (bytes < kKiB) return fmt::format("{} B", bytes);
  constexpr std::array kNames = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  size_t unit = 0;
  double value = static_cast<double>(bytes) / kKiB;
  while (value >= 1023.5) {  // a value that would be printed as 1024 is printed in the next larger unit
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", value, value < 9.995 ? 2 : value < 999.95 ? 1 : 0, kNames[unit]);
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  if (seconds < 0) return "-" + format_duration(-seconds);
  if (seconds < 0.9995e-3) return fmt::format("{:.0f} us", seconds * 1e6);
  if (seconds < 0.9995) return fmt::format("{:.0f} ms", seconds * 1e3);
  if (seconds < 59.95) return fmt::format("{:.1f} s", seconds);
  if (seconds >= 1e15) return fmt::format("{:.3g} d", seconds / 86400);
  const auto s = static_cast<i64>(std::nearbyint(seconds));
  if (s < 3600) return fmt::format("{} min {:02} s", s / 60, s % 60);
  const i64 minutes = static_cast<i64>(std::nearbyint(seconds / 60));
  if (minutes < 24 * 60) return fmt::format("{} h {:02} min", minutes / 60, minutes % 60);
  const i64 hours = static_cast<i64>(std::nearbyint(seconds / 3600));
  return fmt::format("{} d {:02} h", hours / 24, hours % 24);
}

}  // namespace spillway

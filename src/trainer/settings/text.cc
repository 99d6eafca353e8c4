#include "trainer/settings/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/units.h"
#include "trainer/settings/suggest.h"

namespace spillway::trainer {
namespace {

[[noreturn]] void reject(const std::string& what, const std::string& wanted, const std::string& got) {
  throw Error(ErrorCode::usage, "[" + what + "] expected " + wanted + ", got \"" + got + "\"");
}

template <class T>
bool whole(const std::string& text, T& value) {
  const char* end = text.data() + text.size();
  const auto r = std::from_chars(text.data(), end, value);
  return r.ec == std::errc() && r.ptr == end && !text.empty();
}

}  // namespace

void refuse(const std::string& message) { throw Error(ErrorCode::usage, message); }

std::string spaced(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

i64 parse_integer(const std::string& text, const std::string& what) {
  i64 value = 0;
  if (whole(text, value)) return value;
  constexpr double kMostExact = 1e15;  // the whole numbers up to here are exact in a double
  double number = 0;
  const bool other_form = whole(text, number) && std::abs(number) <= kMostExact && number == std::trunc(number);
  refuse("[" + what + "] expected a whole number, got \"" + text + "\"" +
         (other_form ? ": write " + std::to_string(static_cast<i64>(number)) : ""));
}

double parse_number(const std::string& text, const std::string& what) {
  double value = 0;
  if (!whole(text, value) || !std::isfinite(value)) reject(what, "a number such as 3e-4 or 0.1", text);
  return value;
}

bool parse_flag(const std::string& text, const std::string& what) {
  if (text != "true" && text != "false") reject(what, "true or false", text);
  return text == "true";
}

i64 parse_size(const std::string& text, const std::string& what) { return parse_bytes(text, what); }
i64 parse_duration(const std::string& text, const std::string& what) { return parse_duration_s(text, what); }

std::string print_number(double value) {
  std::array<char, 40> buffer;
  return {buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr};
}

std::string print_size(i64 bytes) {
  constexpr std::pair<i64, const char*> kUnits[] = {{1024 * kGiB, "TiB"}, {kGiB, "GiB"},     {1'000'000'000, "GB"},
                                                    {kMiB, "MiB"},        {1'000'000, "MB"}, {kKiB, "KiB"}};
  for (const auto& [unit, name] : kUnits) {
    if (bytes != 0 && bytes % unit == 0) return std::to_string(bytes / unit) + name;
  }
  return std::to_string(bytes) + "B";
}

std::string print_duration(i64 seconds) {
  if (seconds != 0 && seconds % 3600 == 0) return std::to_string(seconds / 3600) + "h";
  if (seconds != 0 && seconds % 60 == 0) return std::to_string(seconds / 60) + "m";
  return std::to_string(seconds) + "s";
}

ScratchPath parse_scratch(const std::string& text, const std::string& what) {
  ScratchPath path{text, std::nullopt};
  const size_t colon = text.rfind(':');
  if (colon != text.npos && colon + 1 < text.size() && text[colon + 1] >= '0' && text[colon + 1] <= '9' &&
      text.find('/', colon) == text.npos) {
    path.path = text.substr(0, colon);
    path.bytes = parse_bytes(text.substr(colon + 1), what);
  }
  if (path.path.empty()) reject(what, "PATH or PATH:SIZE such as /scratch:500GiB", text);
  return path;
}

std::string print_scratch(const ScratchPath& path) { return path.bytes ? path.path + ":" + print_size(*path.bytes) : path.path; }

i64 parse_endurance(const std::string& text, const std::string& what) {
  constexpr std::pair<const char*, double> kUnits[] = {{"TBW", 1e12}, {"PBW", 1e15}};
  for (const auto& [unit, bytes] : kUnits) {
    double number = 0;
    if (!text.ends_with(unit) || !whole(text.substr(0, text.size() - 3), number)) continue;
    // A total of 9e18 bytes or more may not fit into an i64.
    if (const double total = number * bytes; total >= 1 && total < 9e18) return std::llround(total);
  }
  reject(what, "the drive's rated writes such as 600TBW (of 10^12 bytes)", text);
}

std::string print_endurance(i64 bytes) { return print_number(static_cast<double>(bytes) / 1e12) + "TBW"; }

Cadence parse_cadence(const Value& value, const std::string& what) {
  constexpr const char* kWanted = "steps (500), a time (30m) or epochs (1epoch)";
  Cadence cadence;
  const auto* steps = value.as<i64>();
  if (steps == nullptr && value.as<std::string>() == nullptr) reject_kind(value, kWanted, what);
  const std::string text = steps ? std::to_string(std::max<i64>(0, *steps)) : read_text(value, what);
  std::string digits = text;
  if (text.ends_with("epochs")) {
    digits.resize(text.size() - 6);
    cadence.unit = Cadence::Unit::epochs;
  } else if (text.ends_with("epoch")) {
    digits.resize(text.size() - 5);
    cadence.unit = Cadence::Unit::epochs;
  } else if (text.find_first_not_of("0123456789") == text.npos) {
    cadence.unit = Cadence::Unit::steps;
  } else {
    const std::string number = text.substr(0, text.find_first_not_of("0123456789"));
    if (!number.empty() && text.find("step") != text.npos)
      refuse("[" + what + "] expected " + kWanted + ", got " + shown(value) + ": write " + number);
    try {
      cadence.count = parse_duration_s(text, what);
    } catch (const Error&) {  // its message speaks only of times
      refuse("[" + what + "] expected " + kWanted + ", got " + shown(value));
    }
    digits.clear();
  }
  if ((!digits.empty() || cadence.unit != Cadence::Unit::seconds) && !whole(digits, cadence.count)) cadence.count = 0;
  if (cadence.count < 1) refuse("[" + what + "] expected " + kWanted + ", got " + shown(value));
  return cadence;
}

std::string print_cadence(const Cadence& cadence) {
  switch (cadence.unit) {
    case Cadence::Unit::steps:
      return std::to_string(cadence.count);
    case Cadence::Unit::epochs:
      return std::to_string(cadence.count) + "epoch";
    case Cadence::Unit::seconds:
      break;
  }
  return print_duration(cadence.count);
}

StepRange parse_step_range(const Value& value, const std::string& what) {
  constexpr const char* kWanted = "first:last such as 3:6, counted from 1";
  StepRange range{0, 0};
  if (const auto* text = value.as<std::string>()) {
    const size_t colon = text->find(':');
    if (colon != text->npos) range = {parse_integer(text->substr(0, colon), what), parse_integer(text->substr(colon + 1), what)};
  } else if (const auto* steps = value.as<Value::Sequence>()) {
    if (steps->size() == 2) range = {read_integer(steps->front(), what), read_integer(steps->back(), what)};
  } else {
    reject_kind(value, kWanted, what);
  }
  if (range.first < 1 || range.last < range.first) refuse("[" + what + "] expected " + kWanted + ", got " + shown(value));
  return range;
}

std::string print_step_range(const StepRange& range) { return std::to_string(range.first) + ":" + std::to_string(range.last); }

std::string parse_device(const std::string& text, const std::string& what) {
  const size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon), index = colon == std::string::npos ? "0" : text.substr(colon + 1);
  const bool numbered = !index.empty() && index.size() <= 4 && std::ranges::all_of(index, [](char c) { return c >= '0' && c <= '9'; });
  if (text == "cpu" || (kind == "cuda" && numbered)) return text;
  refuse("[" + what + "] expected one of: cpu cuda cuda:N auto, got \"" + text + "\"" +
         value_hint("device", {"cpu", "cuda", "auto"}, text));
}

std::string shell_word(const std::string& word) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./:,+@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == word.npos) return word;
  std::string text = word;
  for (size_t at = 0; (at = text.find('\'', at)) != text.npos; at += 4) text.replace(at, 1, "'\\''");
  return "'" + text + "'";
}

Resume parse_resume(const std::string& text, const std::string& what) {
  if (text.empty()) reject(what, "auto, never, must or a checkpoint's path", text);
  if (text == "auto") return {};
  if (text == "never") return {Resume::Kind::never, ""};
  if (text == "must") return {Resume::Kind::must, ""};
  return {Resume::Kind::path, text};
}

std::string print_resume(const Resume& resume) {
  switch (resume.kind) {
    case Resume::Kind::automatic:
      return "auto";
    case Resume::Kind::never:
      return "never";
    case Resume::Kind::must:
      return "must";
    case Resume::Kind::path:
      break;
  }
  return resume.path;
}

}  // namespace spillway::trainer

#include "base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <type_traits>
#include <vector>

#include "base/line_column.h"
#include "base/types.h"

namespace spillway {
namespace {

// Upper bounds of the memory of a parsed JSON tree. A value takes 16 bytes in a list whose capacity may have doubled; a list or an object
// has a separate allocation; an object's entry has a key and a node.
constexpr i64 kValueBytes = 32, kContainerBytes = 96;
constexpr i64 kFreeBytes = 512 * kMiB, kBytesOfText = 8;
// The most keys that one object may have in parse_ordered_json:
// nlohmann::ordered_json keeps keys in order and finds one by a linear search.
constexpr i64 kMostOrderedKeys = 10'000;

struct Scan {
  int depth = 0;
  i64 tree_bytes = 0;
  i64 keys = 0;  // the largest number of keys in one object of the text
};

// Measures depth, memory and keys of a text before it is parsed. The text need not be valid JSON.
Scan scan(std::string_view text) {
  Scan all;
  int depth = 0;
  std::array<i64, kMostJsonDepth + 1> keys{};  // the number of keys so far in the open object at each depth
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      i += c == '\\' ? 1 : 0;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == ',') {
      all.tree_bytes += kValueBytes;
    } else if (c == '{' || c == '[') {
      all.depth = std::max(all.depth, ++depth);
      if (depth > kMostJsonDepth) return all;
      keys[static_cast<size_t>(depth)] = 0;
      all.tree_bytes += kContainerBytes;
    } else if (c == '}' || c == ']') {
      depth -= depth > 0 ? 1 : 0;
    } else if (c == ':') {
      all.keys = std::max(all.keys, ++keys[static_cast<size_t>(depth)]);
    }
  }
  return all;
}

// Exception that the parser callback throws when an object repeats a key.
struct Repeated {
  std::string key;
};

template <class Json>
Json parse(std::string_view text, RepeatedKeys repeated) {
  if (repeated == RepeatedKeys::keep_last) return Json::parse(text);
  std::vector<std::set<std::string>> seen;  // the keys seen so far in each open object
  const auto watch = [&](int, typename Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) seen.emplace_back();
    if (event == Json::parse_event_t::object_end) seen.pop_back();
    if (event == Json::parse_event_t::key && !seen.back().insert(parsed.template get<std::string>()).second)
      throw Repeated{parsed.template get<std::string>()};
    return true;
  };
  return Json::parse(text, watch);
}

template <class Json>
Json parse_checked(std::string_view text, JsonFault* fault, RepeatedKeys repeated) {
  JsonFault wrong;
  const Scan found = scan(text);
  const i64 most_bytes = kFreeBytes + kBytesOfText * std::ssize(text);
  if (found.depth > kMostJsonDepth) {
    wrong.expected = fmt::format("values nested at most {} deep, got deeper ones", kMostJsonDepth);
  } else if (std::is_same_v<Json, nlohmann::ordered_json> && found.keys > kMostOrderedKeys) {
    wrong.expected = fmt::format("objects of at most {} keys, got an object with more", kMostOrderedKeys);
  } else if (found.tree_bytes > most_bytes) {
    wrong.expected = fmt::format("values that take at most {} MiB of memory, got more", most_bytes / kMiB);
  } else {
    try {
      return parse<Json>(text, repeated);
    } catch (const typename Json::parse_error& error) {
      wrong = {error.byte, "JSON", error.what()};
    } catch (const typename Json::out_of_range& error) {
      wrong = {0, "numbers of at most 1.8e308, got a larger one", error.what()};
    } catch (const Repeated& key) {
      wrong = {0, fmt::format("each key once, got `{}` twice in an object", key.key), ""};
    }
  }
  if (fault) *fault = std::move(wrong);
  return Json(Json::value_t::discarded);
}

}  // namespace

std::string JsonFault::in_words(std::string_view text) const {
  if (byte == 0) return "expected " + expected;
  return fmt::format("expected {}, got a syntax error in {}: the text may be truncated", expected, line_and_column(text, byte));
}

nlohmann::json parse_json(std::string_view text, JsonFault* fault, RepeatedKeys repeated) {
  return parse_checked<nlohmann::json>(text, fault, repeated);
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, JsonFault* fault, RepeatedKeys repeated) {
  return parse_checked<nlohmann::ordered_json>(text, fault, repeated);
}

}  // namespace spillway

#include "data/rows/json_place.h"

#include <algorithm>

namespace spillway::data {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

class Walker {
 public:
  explicit Walker(std::string_view json) : json_(json) { spaces(); }

  size_t at() const { return at_; }

  // Moves to the value under a key or an index. If there is no such value,
  // returns false, and the position stays that of the enclosing value.
  bool enter(const std::variant<std::string, size_t>& step) {
    const size_t begin = at_;
    const auto* key = std::get_if<std::string>(&step);
    if (now() == (key ? '{' : '[')) {
      take();
      for (size_t i = 0; now() != '}' && now() != ']' && !done(); ++i) {
        const bool found = key ? string() == *key : i == std::get<size_t>(step);
        if (key) take();  // skips the colon after the key
        if (found) return true;
        skip_value();
        if (now() == ',') take();
      }
    }
    at_ = begin;
    return false;
  }

 private:
  bool done() const { return at_ >= json_.size(); }
  char now() const { return done() ? '\0' : json_[at_]; }
  void spaces() {
    while (!done() && is_space(json_[at_])) ++at_;
  }
  void take() {
    ++at_;
    spaces();
  }

  // Reads a string and returns the raw text between its quotes. Escapes need not be resolved, because none of the keys that are looked up
  // contains a character that is escaped.
  std::string_view string() {
    const size_t begin = ++at_;
    while (!done() && json_[at_] != '"') at_ += json_[at_] == '\\' ? 2 : 1;
    const size_t end = std::min(at_, json_.size());
    at_ = end;
    take();
    return json_.substr(begin, end - begin);
  }

  void skip_value() {
    size_t depth = 0;
    do {
      const char c = now();
      if (c == '"') {
        string();
      } else {
        depth += c == '{' || c == '[' ? 1 : 0;
        depth -= (c == '}' || c == ']') && depth > 0 ? 1 : 0;
        take();
      }
      while (depth == 0 && !done() && now() != ',' && now() != '}' && now() != ']') take();
    } while (depth > 0 && !done());
  }

  std::string_view json_;
  size_t at_ = 0;
};

}  // namespace

size_t json_place(std::string_view json, const JsonPath& path) {
  Walker walker(json);
  for (const auto& step : path) {
    if (!walker.enter(step)) break;
  }
  return walker.at();
}

}  // namespace spillway::data

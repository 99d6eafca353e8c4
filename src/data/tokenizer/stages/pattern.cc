#include "data/tokenizer/stages/pattern.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

namespace spillway::data {

Pattern Pattern::read(const nlohmann::json& value, const JsonPlace& place) {
  Fields fields(value, place);
  Pattern pattern;
  if (fields.find("String") != nullptr) {
    pattern.literal_ = fields.text("String");
    if (pattern.literal_->empty()) refuse_value(fields.place_of("String"), "a string of one character or more", "\"\"");
    pattern.find_borders();
  } else {
    const std::string text = fields.text("Regex");
    fields.place_of("Regex").take_pattern(text.size());
    pattern.regex_.emplace(text, "[tokenizer] " + place.file + ", " + fields.place_of("Regex").key);
  }
  fields.refuse_the_rest();
  return pattern;
}

void Pattern::find_borders() {
  const std::string& text = *literal_;
  borders_.resize(text.size());
  for (size_t i = 1, length = 0; i < text.size(); ++i) {
    while (length > 0 && text[i] != text[length]) length = borders_[length - 1];
    if (text[i] == text[length]) ++length;
    borders_[i] = static_cast<u32>(length);
  }
}

size_t find_in_long(std::string_view text, std::string_view what, size_t from) {
  // memmem searches for a long `what` in linear time. For a short `what` it takes at most the product of the two lengths.
  const void* const found = ::memmem(text.data() + from, text.size() - from, what.data(), what.size());
  return found == nullptr ? std::string_view::npos : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

void Pattern::segments(std::string_view text, WorkBudget& budget, Segments& into) const {
  into.clear();
  walk(text, budget, [&](size_t begin, size_t end, bool match) { into.push_back({begin, end, match}); });
}

Behaviour read_behaviour(const std::string& name, const JsonPlace& place) {
  if (name == "Removed") return Behaviour::removed;
  if (name == "Isolated") return Behaviour::isolated;
  if (name == "MergedWithPrevious") return Behaviour::merged_with_previous;
  if (name == "MergedWithNext") return Behaviour::merged_with_next;
  if (name == "Contiguous") return Behaviour::contiguous;
  refuse_value(place, "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous", '"' + name + '"');
}

void apply(Behaviour behaviour, Segments& segments) {
  const bool backward = behaviour == Behaviour::merged_with_next;
  if (backward) std::ranges::reverse(segments);
  size_t kept = 0;
  bool previous = false;
  for (const Segment& segment : segments) {
    const bool joins = behaviour == Behaviour::contiguous                         ? segment.match == previous
                       : behaviour == Behaviour::merged_with_previous || backward ? segment.match && !previous
                                                                                  : false;
    previous = segment.match;
    if (behaviour == Behaviour::removed && segment.match) continue;
    if (joins && kept > 0) {
      if (backward) {
        segments[kept - 1].begin = segment.begin;
      } else {
        segments[kept - 1].end = segment.end;
      }
    } else {
      segments[kept++] = segment;
    }
  }
  segments.resize(kept);
  if (backward) std::ranges::reverse(segments);
  std::erase_if(segments, [](const Segment& segment) { return segment.begin == segment.end; });
}

}  // namespace spillway::data

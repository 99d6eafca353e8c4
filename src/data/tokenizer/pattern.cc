#include "data/tokenizer/pattern.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace spillway::data {

Pattern Pattern::read(const nlohmann::json& value, const JsonPlace& place) {
  Fields fields(value, place);
  Pattern pattern;
  if (fields.find("String") != nullptr) {
    pattern.literal_ = fields.text("String");
    if (pattern.literal_->empty()) refuse_value(fields.place_of("String"), "a string of one character or more", "\"\"");
  } else {
    pattern.regex_.emplace(fields.text("Regex"), "[tokenizer] " + place.file + ", " + fields.place_of("Regex").key);
  }
  fields.refuse_the_rest();
  return pattern;
}

void Pattern::segments(std::string_view text, Segments& into) const {
  into.clear();
  walk(text, [&](size_t begin, size_t end, bool match) { into.push_back({begin, end, match}); });
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

#include "data/tokenizer/stages/post_processor.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "data/tokenizer/stages/normalizer.h"

namespace spillway::data {
namespace {

using nlohmann::json;

constexpr i64 kMostIds = 256;  // the limit on the number of tokens before a text, and on the number after it
constexpr i64 kLargestId = (i64{1} << 31) - 2;

using SpecialIds = std::map<std::string, std::vector<i32>>;

SpecialIds read_special_ids(Fields& fields) {
  SpecialIds special;
  const json* all = fields.find("special_tokens");
  if (all == nullptr) return special;
  const JsonPlace place = fields.place_of("special_tokens");
  if (!all->is_object()) refuse_json(place, "an object", *all);
  for (const auto& [name, value] : all->items()) {
    Fields token(value, place);
    token.pass_over({"id", "tokens"});
    const json& ids = token.at("ids", "an array of ids");
    if (!ids.is_array()) refuse_json(token.place_of("ids"), "an array of ids", ids);
    for (const json& id : ids) {
      if (!whole_number(id, kLargestId)) refuse_json(token.place_of("ids"), "ids", id);
      special[name].push_back(id.get<i32>());
    }
    special[name];
    token.refuse_the_rest();
  }
  return special;
}

Around read_template(Fields& fields) {
  fields.pass_over({"pair"});  // `pair` is ignored, because this program never encodes pairs of texts
  const SpecialIds special = read_special_ids(fields);
  const json& parts = fields.at("single", "an array");
  const JsonPlace place = fields.place_of("single");
  if (!parts.is_array()) refuse_json(place, "an array", parts);
  Around around;
  bool text_seen = false;
  for (const json& part : parts) {
    Fields kind(part, place);
    if (const json* sequence = kind.find("Sequence")) {
      Fields which(*sequence, kind.place_of("Sequence"));
      which.pass_over({"type_id"});
      if (which.text("id") != "A" || text_seen)
        refuse_value(which.place(), "the sequence A exactly once", text_seen ? "the sequence A again" : "another sequence");
      which.refuse_the_rest();
      text_seen = true;
    } else {
      Fields token(kind.at("SpecialToken", "SpecialToken or Sequence"), kind.place_of("SpecialToken"));
      token.pass_over({"type_id"});
      const std::string name = token.text("id");
      const auto found = special.find(name);
      if (found == special.end()) refuse_json(token.place_of("id"), "one of special_tokens", json(name));
      auto& ids = text_seen ? around.behind : around.before;
      ids.insert(ids.end(), found->second.begin(), found->second.end());
      if (static_cast<i64>(ids.size()) > kMostIds) refuse_value(place, "at most 256 special token ids before or after a text", "more ids");
      token.refuse_the_rest();
    }
    kind.refuse_the_rest();
  }
  if (!text_seen) refuse_value(place, "the sequence A exactly once", "no sequence");
  return around;
}

i32 read_pair(Fields& fields, const char* key) {
  const json& pair = fields.at(key, "a token and its id");
  const bool good = pair.is_array() && pair.size() == 2 && pair[0].is_string() && whole_number(pair[1], kLargestId);
  if (!good) refuse_json(fields.place_of(key), "a token and its id", pair);
  return pair[1].get<i32>();
}

void read_processor(const json& value, const JsonPlace& place, int depth, Around& around) {
  if (depth > kDeepest) refuse_value(place, "sequences nested at most 16 deep", "deeper ones");
  Fields fields(value, place);
  const std::string type = fields.text("type");
  Around made;
  if (type == "Sequence") {
    const json& steps = fields.at("processors", "an array");
    if (!steps.is_array()) refuse_json(fields.place_of("processors"), "an array", steps);
    for (const json& step : steps) read_processor(step, fields.place_of("processors"), depth + 1, around);
  } else if (type == "ByteLevel") {
    fields.pass_over({"add_prefix_space", "trim_offsets", "use_regex"});
  } else if (type == "TemplateProcessing") {
    made = read_template(fields);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    fields.pass_over({"trim_offsets", "add_prefix_space"});
    made = {{read_pair(fields, "cls")}, {read_pair(fields, "sep")}};
  } else {
    refuse_value(fields.place_of("type"), "a post-processor that this program supports", '"' + type + '"');
  }
  fields.refuse_the_rest();
  if (made.before.empty() && made.behind.empty()) return;
  if (!around.before.empty() || !around.behind.empty()) refuse_value(place, "at most one post-processor that adds tokens", "two");
  around = std::move(made);
}

}  // namespace

std::span<const i32> missing_before(const Around& around, std::span<const i32> ids) {
  const std::span<const i32> before = around.before;
  size_t shared = std::min(before.size(), ids.size());
  while (shared > 0 && !std::ranges::equal(before.last(shared), ids.first(shared))) --shared;
  return before.first(before.size() - shared);
}

std::span<const i32> missing_behind(const Around& around, std::span<const i32> ids) {
  const std::span<const i32> behind = around.behind;
  size_t shared = std::min(behind.size(), ids.size());
  while (shared > 0 && !std::ranges::equal(behind.first(shared), ids.last(shared))) --shared;
  return behind.last(behind.size() - shared);
}

std::vector<i32> encode_with_around(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<i32> ids = tokenizer.encode(text);
  const Around& around = tokenizer.around();
  const auto before = missing_before(around, ids), behind = missing_behind(around, ids);
  ids.insert(ids.begin(), before.begin(), before.end());
  ids.insert(ids.end(), behind.begin(), behind.end());
  return ids;
}

Around read_post_processor(const json& value, const JsonPlace& place) {
  Around around;
  if (!value.is_null()) read_processor(value, place, 0, around);
  return around;
}

}  // namespace spillway::data

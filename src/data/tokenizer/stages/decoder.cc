#include "data/tokenizer/stages/decoder.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "data/tokenizer/stages/decode_stages.h"
#include "data/tokenizer/stages/normalizer.h"
#include "data/tokenizer/stages/pre_tokenizer.h"

namespace spillway::data {
namespace {

using nlohmann::json;

constexpr double kMostDecoderGrowth = 65536;

struct WriteText : DecodeStage {
  WriteText(WorkBudget& budget, std::string& text) : DecodeStage(budget), out(text) {}
  void take(std::string_view text, bool) override {
    budget().check_length(out.size() + text.size());
    out += text;
  }
  void finish() override {}
  std::string& out;
};

}  // namespace

Decoder::Decoder(const json& value, const JsonPlace& place) {
  if (value.is_null()) {
    stages_.emplace_back(join_stage);
  } else {
    add(value, place, 0);
  }
}

void Decoder::add(const json& value, const JsonPlace& place, int depth) {
  if (depth > kDeepest) refuse_value(place, "sequences nested at most 16 deep", "deeper ones");
  Fields fields(value, place);
  const std::string type = fields.text("type");
  if (type == "Sequence") {
    const json& steps = fields.at("decoders", "an array");
    if (!steps.is_array()) refuse_json(fields.place_of("decoders"), "an array", steps);
    for (const json& step : steps) add(step, fields.place_of("decoders"), depth + 1);
  } else {
    place.take_step();
    stages_.push_back(read_stage(type, fields));
  }
  fields.refuse_the_rest();
}

Decoder::MakeStage Decoder::read_stage(const std::string& type, Fields& fields) {
  if (type == "ByteLevel") {
    fields.pass_over({"add_prefix_space", "trim_offsets", "use_regex"});
    return byte_level_stage;
  }
  if (type == "ByteFallback") return byte_fallback_stage;
  if (type == "Fuse") return fuse_stage;
  if (type == "Strip") {
    const char32_t content = fields.character("content");
    const i64 start = fields.number("start", 0, kMiB), stop = fields.number("stop", 0, kMiB);
    return [=](DecodeStage& next) { return strip_stage(next, content, start, stop); };
  }
  if (type == "Replace") {
    const auto pattern = std::make_shared<const Pattern>(Pattern::read(fields.at("pattern", "a pattern"), fields.place_of("pattern")));
    const std::string content = fields.text("content");
    const double matched = pattern->literal() ? static_cast<double>(pattern->literal()->size()) : 1;
    growth_ *= std::max(1.0, static_cast<double>(content.size() + 1) / matched);
    if (growth_ > kMostDecoderGrowth)
      refuse_value(fields.place(), "decoders that make a text at most 65536 times as long", "decoders that make it longer");
    return [pattern, content](DecodeStage& next) { return replace_stage(next, pattern, content); };
  }
  if (type == "Metaspace") {
    const Metaspace metaspace = read_metaspace(fields);
    const bool drop = metaspace.prepend != Metaspace::Prepend::never;
    return [=](DecodeStage& next) { return metaspace_stage(next, metaspace.replacement, drop); };
  }
  if (type == "WordPiece") {
    return [prefix = fields.text("prefix"), cleanup = fields.flag("cleanup", true)](DecodeStage& next) {
      return word_piece_stage(next, prefix, cleanup);
    };
  }
  if (type == "BPEDecoder") {
    const std::string suffix = fields.text("suffix");
    if (suffix.empty()) refuse_value(fields.place_of("suffix"), "a suffix that is not empty", "\"\"");
    return [suffix](DecodeStage& next) { return suffix_stage(next, suffix); };
  }
  refuse_value(fields.place_of("type"), "a decoder that this program supports", '"' + type + '"');
}

Decoder::Chain::Chain(const Decoder& decoder, WorkBudget& budget, std::string& out) {
  stages_.push_back(std::make_unique<WriteText>(budget, out));
  for (auto make = decoder.stages_.rbegin(); make != decoder.stages_.rend(); ++make) stages_.push_back((*make)(*stages_.back()));
  first_ = stages_.back().get();
}

}  // namespace spillway::data

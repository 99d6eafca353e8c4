#include "data/tokenizer/stages/pre_tokenizer.h"

#include <algorithm>
#include <array>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "data/text/unicode.h"
#include "data/tokenizer/byte_level.h"
#include "data/tokenizer/stages/normalizer.h"
#include "data/tokenizer/stages/pattern.h"

namespace spillway::data {
namespace {

using nlohmann::json;

// The patterns of GPT-2, Llama 3, Qwen 2 and GPT-4o. Each of them always cuts after a letter at the end of a line: no piece spans that
// position, and no piece before that position depends on the text after it.
#define CONTRACTIONS R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
#define REST R"([^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"
constexpr std::array<std::string_view, 4> kCutAtLineEnds = {
    kGpt2Pattern, CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?)" REST, CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?)" REST,
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)" CONTRACTIONS
    R"(?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)" CONTRACTIONS
    R"(?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
#undef CONTRACTIONS
#undef REST

/// Cuts each piece. find(text of the piece, segments) finds the matches, and `behaviour` decides which parts remain.
template <class Find>
void cut_pieces(Pieces& pieces, Behaviour behaviour, const Find& find) {
  std::vector<Span> spans;
  Segments segments;
  for (const Span& span : pieces.spans) {
    if (span.id >= 0) {
      spans.push_back(span);
      continue;
    }
    segments.clear();
    find(std::string_view(pieces.text.text).substr(span.begin, span.end - span.begin), segments);
    apply(behaviour, segments);
    for (const Segment& s : segments) spans.push_back({span.begin + s.begin, span.begin + s.end});
  }
  pieces.spans = std::move(spans);
}

struct CutAtPattern : PreTokenizer {
  CutAtPattern(Pattern where, Behaviour what, bool other_way) : pattern(std::move(where)), behaviour(what), invert(other_way) {}
  void operator()(Pieces& pieces) const override {
    cut_pieces(pieces, behaviour, [&](std::string_view text, Segments& segments) {
      pattern.segments(text, *pieces.text.budget, segments);
      if (!invert) return;
      for (Segment& segment : segments) segment.match = !segment.match;
    });
  }
  const Regex* isolates() const override { return behaviour == Behaviour::isolated ? pattern.regex() : nullptr; }
  LineEnds line_ends() const override {
    const bool known =
        isolates() != nullptr && std::ranges::find(kCutAtLineEnds, std::string_view(pattern.regex()->pattern())) != kCutAtLineEnds.end();
    return known ? LineEnds::cut : LineEnds::hidden;
  }
  Pattern pattern;
  Behaviour behaviour;
  bool invert;
};

struct CutAtCharacters : PreTokenizer {
  CutAtCharacters(std::function<bool(char32_t)> of, Behaviour what, LineEnds at_line_ends)
      : is(std::move(of)), behaviour(what), ends(at_line_ends) {}
  void operator()(Pieces& pieces) const override {
    cut_pieces(pieces, behaviour, [&](std::string_view text, Segments& segments) {
      for (size_t at = 0, between = 0; at < text.size();) {
        const size_t begin = at;
        const bool match = is(next_code(text, at));
        if (match && between < begin) segments.push_back({between, begin, false});
        if (match) segments.push_back({begin, at, true});
        if (match) between = at;
        if (at == text.size() && between < at) segments.push_back({between, at, false});
      }
    });
  }
  LineEnds line_ends() const override { return ends; }
  std::function<bool(char32_t)> is;
  Behaviour behaviour;
  LineEnds ends;
};

/// Cuts a text into runs of word characters and runs of other characters. White space belongs to neither kind of run.
struct CutIntoWords : PreTokenizer {
  void operator()(Pieces& pieces) const override {
    cut_pieces(pieces, Behaviour::isolated, [](std::string_view text, Segments& segments) {
      int last = 0;
      for (size_t at = 0; at < text.size();) {
        const size_t begin = at;
        const char32_t code = next_code(text, at);
        const int kind = is_word(code) ? 1 : is_white_space(code) ? 0 : 2;
        if (kind != 0 && kind == last) {
          segments.back().end = at;
        } else if (kind != 0) {
          segments.push_back({begin, at, true});
        }
        last = kind;
      }
    });
  }
  LineEnds line_ends() const override { return LineEnds::cut; }
};

/// Rewrites each piece. `rewrite(out, span)` appends the new text of the piece `span` to `out`.
template <class Rewrite>
void rewrite_pieces(Pieces& pieces, const Rewrite& rewrite) {
  Rewriter out(pieces.text);
  std::vector<Span> spans;
  spans.reserve(pieces.spans.size());
  for (const Span& span : pieces.spans) {
    const size_t begin = out.size();
    if (span.id >= 0) {
      out.keep(span.begin, span.end);
    } else {
      rewrite(out, span);
    }
    if (span.id >= 0 || out.size() > begin) spans.push_back({begin, out.size(), span.id});
  }
  pieces.text = out.take();
  pieces.spans = std::move(spans);
}

struct SpaceInFront : PreTokenizer {
  void operator()(Pieces& pieces) const override {
    const AlignedText& text = pieces.text;
    rewrite_pieces(pieces, [&](Rewriter& out, const Span& span) {
      if (text.text[span.begin] == ' ') return out.keep(span.begin, span.end);
      keep_with_prefix(out, text, span.begin, span.end, " ");
    });
  }
  LineEnds line_ends() const override { return LineEnds::hidden; }
};

struct MapBytes : PreTokenizer {
  void operator()(Pieces& pieces) const override {
    const std::string& text = pieces.text.text;
    rewrite_pieces(pieces, [&](Rewriter& out, const Span& span) {
      for (size_t at = span.begin; at < span.end; ++at) out.put(byte_character(text[at]), at, at + 1);
    });
  }
  bool maps_bytes() const override { return true; }
};

struct MapSpaces : PreTokenizer {
  explicit MapSpaces(const Metaspace& how) : metaspace(how), replacement(utf8_of(how.replacement)) {}
  void operator()(Pieces& pieces) const override {
    const AlignedText& text = pieces.text;
    rewrite_pieces(pieces, [&](Rewriter& out, const Span& span) {
      const bool first = pieces.at_start && span.begin == 0;
      const bool wanted = metaspace.prepend == Metaspace::Prepend::always || (metaspace.prepend == Metaspace::Prepend::first && first);
      const std::string_view piece = std::string_view(text.text).substr(span.begin, span.end - span.begin);
      size_t at = span.begin;
      if (wanted && piece[0] != ' ' && !piece.starts_with(replacement)) {
        const size_t begin = at;
        next_code(text.text, at);
        keep_with_prefix(out, text, begin, at, replacement);
      }
      while (at < span.end) {
        const size_t space = std::min(text.text.find(' ', at), span.end);
        out.keep(at, space);
        if (space < span.end) out.put(replacement, space, space + 1);
        at = space + 1;
      }
    });
  }
  LineEnds line_ends() const override { return LineEnds::hidden; }
  Metaspace metaspace;
  std::string replacement;
};

void add_pre_tokenizers(const json& value, const JsonPlace& place, int depth, PreTokenizers& into);

Pattern pattern_of(const std::string& regex, const JsonPlace& place) { return Pattern::read(json{{"Regex", regex}}, place); }

void add_characters(PreTokenizers& into, std::function<bool(char32_t)> is, Behaviour behaviour, LineEnds ends = LineEnds::kept) {
  into.push_back(std::make_unique<CutAtCharacters>(std::move(is), behaviour, ends));
}

void add_byte_level(Fields& fields, PreTokenizers& into) {
  // The key trim_offsets is ignored: it changes only the offsets that Hugging Face reports, and this program reports untrimmed ones.
  fields.flag("trim_offsets", true);
  if (fields.flag("add_prefix_space", true)) into.push_back(std::make_unique<SpaceInFront>());
  if (fields.flag("use_regex", true)) {
    into.push_back(std::make_unique<CutAtPattern>(pattern_of(std::string(kGpt2Pattern), fields.place()), Behaviour::isolated, false));
  }
  into.push_back(std::make_unique<MapBytes>());
}

void add_step(const std::string& type, Fields& fields, PreTokenizers& into) {
  if (type == "ByteLevel") {
    add_byte_level(fields, into);
  } else if (type == "Split") {
    Pattern pattern = Pattern::read(fields.at("pattern", "a pattern"), fields.place_of("pattern"));
    const Behaviour behaviour = read_behaviour(fields.text("behavior"), fields.place_of("behavior"));
    into.push_back(std::make_unique<CutAtPattern>(std::move(pattern), behaviour, fields.flag("invert", false)));
  } else if (type == "Metaspace") {
    const Metaspace metaspace = read_metaspace(fields);
    into.push_back(std::make_unique<MapSpaces>(metaspace));
    if (metaspace.split)
      add_characters(
          into, [c = metaspace.replacement](char32_t code) { return code == c; }, Behaviour::merged_with_next);
  } else if (type == "Whitespace") {
    into.push_back(std::make_unique<CutIntoWords>());
  } else if (type == "WhitespaceSplit") {
    add_characters(into, is_white_space, Behaviour::removed, LineEnds::cut);
  } else if (type == "BertPreTokenizer") {
    add_characters(into, is_white_space, Behaviour::removed, LineEnds::cut);
    add_characters(into, is_punctuation, Behaviour::isolated);
  } else if (type == "Digits") {
    add_characters(into, is_number, fields.flag("individual_digits", false) ? Behaviour::isolated : Behaviour::contiguous);
  } else if (type == "Punctuation") {
    const auto name = fields.text_if_any("behavior");
    add_characters(into, is_punctuation, name ? read_behaviour(*name, fields.place_of("behavior")) : Behaviour::isolated, LineEnds::hidden);
  } else if (type == "CharDelimiterSplit") {
    add_characters(
        into, [c = fields.character("delimiter")](char32_t code) { return code == c; }, Behaviour::removed, LineEnds::hidden);
  } else {
    refuse_value(fields.place_of("type"), "a pre-tokenizer that this program supports", '"' + type + '"');
  }
}

void add_pre_tokenizers(const json& value, const JsonPlace& place, int depth, PreTokenizers& into) {
  if (depth > kDeepest) refuse_value(place, "sequences nested at most 16 deep", "deeper ones");
  Fields fields(value, place);
  const std::string type = fields.text("type");
  if (type == "Sequence") {
    const json& steps = fields.at("pretokenizers", "an array");
    if (!steps.is_array()) refuse_json(fields.place_of("pretokenizers"), "an array", steps);
    for (const json& step : steps) add_pre_tokenizers(step, fields.place_of("pretokenizers"), depth + 1, into);
  } else {
    place.take_step();
    add_step(type, fields, into);
  }
  fields.refuse_the_rest();
}

}  // namespace

PreTokenizers read_pre_tokenizer(const json& value, const JsonPlace& place) {
  PreTokenizers steps;
  if (!value.is_null()) add_pre_tokenizers(value, place, 0, steps);
  return steps;
}

Metaspace read_metaspace(Fields& fields) {
  Metaspace metaspace;
  fields.pass_over({"str_rep"});  // `str_rep` is ignored, because it repeats the value of `replacement`
  metaspace.replacement = fields.character("replacement");
  metaspace.split = fields.flag("split", true);
  const auto scheme = fields.text_if_any("prepend_scheme");
  const bool space_in_front = fields.flag("add_prefix_space", true);
  if (scheme == "never" || (!scheme && !space_in_front)) {
    metaspace.prepend = Metaspace::Prepend::never;
  } else if (scheme == "first") {
    metaspace.prepend = Metaspace::Prepend::first;
  } else if (scheme && scheme != "always") {
    refuse_value(fields.place_of("prepend_scheme"), "always, first or never", '"' + *scheme + '"');
  }
  if (!space_in_front && metaspace.prepend != Metaspace::Prepend::never) {
    refuse_value(fields.place_of("prepend_scheme"), "never, because add_prefix_space is false", '"' + *scheme + '"');
  }
  return metaspace;
}

}  // namespace spillway::data

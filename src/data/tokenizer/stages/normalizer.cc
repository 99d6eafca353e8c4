#include "data/tokenizer/stages/normalizer.h"

#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "data/text/unicode.h"
#include "data/tokenizer/byte_level.h"
#include "data/tokenizer/stages/pattern.h"

namespace spillway::data {
namespace {

using nlohmann::json;

/// Applies a step that treats each character by itself: `step(out, code, begin, end)` writes the replacement of the character `code`, which
/// is at bytes [begin, end) of the text, to `out`.
template <class Step>
AlignedText each_character(const AlignedText& text, const Step& step) {
  Rewriter out(text);
  for (size_t at = 0; at < text.text.size();) {
    const size_t begin = at;
    const char32_t code = next_code(text.text, at);
    step(out, code, begin, at);
  }
  return out.take();
}

AlignedText lower(const AlignedText& text) {
  std::string made;
  return each_character(text, [&](Rewriter& out, char32_t code, size_t begin, size_t end) {
    made.clear();
    append_lower(made, code);
    if (std::string_view(text.text).substr(begin, end - begin) == made) return out.keep(begin, end);
    out.put(made, begin, end);
  });
}

template <class Drop>
AlignedText without(const AlignedText& text, const Drop& drop) {
  return each_character(text, [&](Rewriter& out, char32_t code, size_t begin, size_t end) {
    if (!drop(code)) out.keep(begin, end);
  });
}

/// Normalizes the text in parts, each as short as possible. As a result, each
/// changed byte gets only a few characters of the original text as its origin.
AlignedText in_normal_form(const AlignedText& text, NormalForm form) {
  Rewriter out(text);
  const std::string_view all = text.text;
  for (size_t at = 0; at < all.size();) {
    const size_t begin = at;
    bool ascii = next_code(all, at) < 0x80;
    while (at < all.size()) {
      size_t behind = at;
      const char32_t code = next_code(all, behind);
      if (begins_normal_part(code)) break;
      ascii = false;
      at = behind;
    }
    if (ascii) {
      out.keep(begin, at);
      continue;
    }
    const std::string made = normal_form(all.substr(begin, at - begin), form);
    if (made == all.substr(begin, at - begin)) {
      out.keep(begin, at);
    } else {
      out.put(made, begin, at);
    }
  }
  return out.take();
}

struct InNormalForm : Normalizer {
  explicit InNormalForm(NormalForm which) : form(which) {}
  AlignedText operator()(const AlignedText& text) const override { return in_normal_form(text, form); }
  bool leaves_ascii() const override { return true; }
  NormalForm form;
};

struct Lowercase : Normalizer {
  AlignedText operator()(const AlignedText& text) const override { return lower(text); }
};

struct StripAccents : Normalizer {
  AlignedText operator()(const AlignedText& text) const override { return without(text, is_mark); }
};

struct StripSpaces : Normalizer {
  StripSpaces(bool at_left, bool at_right) : left(at_left), right(at_right) {}
  AlignedText operator()(const AlignedText& text) const override {
    size_t begin = 0, end = text.text.size();
    while (left && begin < end) {
      size_t at = begin;
      if (!is_white_space(next_code(text.text, at))) break;
      begin = at;
    }
    while (right && begin < end) {
      size_t at = last_character(std::string_view(text.text).substr(0, end));
      const size_t last = at;
      if (!is_white_space(next_code(text.text, at))) break;
      end = last;
    }
    Rewriter out(text);
    out.keep(begin, end);
    return out.take();
  }
  bool keeps_line_ends() const override { return false; }
  bool left, right;
};

struct Prepend : Normalizer {
  explicit Prepend(std::string text) : prefix(std::move(text)) {}
  AlignedText operator()(const AlignedText& text) const override {
    if (text.text.empty()) return text;
    Rewriter out(text);
    keep_with_prefix(out, text, 0, text.text.size(), prefix);
    return out.take();
  }
  bool keeps_line_ends() const override { return false; }
  std::string prefix;
};

struct Replace : Normalizer {
  Replace(Pattern what, std::string by) : pattern(std::move(what)), content(std::move(by)) {}
  AlignedText operator()(const AlignedText& text) const override {
    Rewriter out(text);
    pattern.walk(text.text, *text.budget, [&](size_t begin, size_t end, bool match) {
      if (!match) return out.keep(begin, end);
      // Of the bytes that matched, only the last character counts as the origin of the replacement.
      out.put(content, begin + last_of(std::string_view(text.text).substr(begin, end - begin)), end);
    });
    return out.take();
  }
  bool keeps_line_ends() const override { return false; }
  static size_t last_of(std::string_view part) { return part.empty() ? 0 : last_character(part); }
  Pattern pattern;
  std::string content;
};

bool is_chinese(char32_t code) {
  return (code >= 0x4E00 && code <= 0x9FFF) || (code >= 0x3400 && code <= 0x4DBF) || (code >= 0x20000 && code <= 0x2A6DF) ||
         (code >= 0x2A700 && code <= 0x2B73F) || (code >= 0x2B740 && code <= 0x2B81F) || (code >= 0x2B920 && code <= 0x2CEAF) ||
         (code >= 0xF900 && code <= 0xFAFF) || (code >= 0x2F800 && code <= 0x2FA1F);
}

struct Bert : Normalizer {
  AlignedText operator()(const AlignedText& text) const override {
    AlignedText made = text;
    if (clean) {
      made = each_character(made, [](Rewriter& out, char32_t code, size_t begin, size_t end) {
        const bool line = code == '\t' || code == '\n' || code == '\r';
        if (code == 0 || code == 0xFFFD || (!line && is_control(code))) return;
        if (line || is_white_space(code)) return out.put(" ", begin, end);
        out.keep(begin, end);
      });
    }
    if (chinese) {
      made = each_character(made, [&](Rewriter& out, char32_t code, size_t begin, size_t end) {
        if (!is_chinese(code)) return out.keep(begin, end);
        out.put(" ", begin, end);
        out.put(std::string_view(made.text).substr(begin, end - begin), begin, end);
        out.put(" ", begin, end);
      });
    }
    if (accents) made = without(in_normal_form(made, NormalForm::nfd), is_bert_accent);
    return lowercase ? lower(made) : made;
  }
  bool clean, chinese, accents, lowercase;
};

struct Nmt : Normalizer {
  AlignedText operator()(const AlignedText& text) const override {
    return each_character(text, [](Rewriter& out, char32_t c, size_t begin, size_t end) {
      const bool dropped = (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
      const bool space = c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || (c >= 0x200B && c <= 0x200F) || c == 0x2028 ||
                         c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
      if (space) return out.put(" ", begin, end);
      if (!dropped) out.keep(begin, end);
    });
  }
};

struct ByteLevelNormalizer : Normalizer {
  AlignedText operator()(const AlignedText& text) const override {
    Rewriter out(text);
    for (size_t at = 0; at < text.text.size(); ++at) out.put(byte_character(text.text[at]), at, at + 1);
    return out.take();
  }
  bool keeps_line_ends() const override { return false; }
};

void add_normalizers(const json& value, const JsonPlace& place, int depth, Normalizers& into);

std::unique_ptr<Normalizer> read_step(const std::string& type, Fields& fields) {
  if (type == "NFC") return std::make_unique<InNormalForm>(NormalForm::nfc);
  if (type == "NFD") return std::make_unique<InNormalForm>(NormalForm::nfd);
  if (type == "NFKC") return std::make_unique<InNormalForm>(NormalForm::nfkc);
  if (type == "NFKD") return std::make_unique<InNormalForm>(NormalForm::nfkd);
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "StripAccents") return std::make_unique<StripAccents>();
  if (type == "Strip") return std::make_unique<StripSpaces>(fields.flag("strip_left"), fields.flag("strip_right"));
  if (type == "Prepend") return std::make_unique<Prepend>(fields.text("prepend"));
  if (type == "Nmt") return std::make_unique<Nmt>();
  if (type == "ByteLevel") return std::make_unique<ByteLevelNormalizer>();
  if (type == "Precompiled") return read_precompiled(fields.text("precompiled_charsmap"), fields.place_of("precompiled_charsmap"));
  if (type == "Replace") {
    Pattern pattern = Pattern::read(fields.at("pattern", "a pattern"), fields.place_of("pattern"));
    return std::make_unique<Replace>(std::move(pattern), fields.text("content"));
  }
  if (type == "BertNormalizer") {
    auto bert = std::make_unique<Bert>();
    bert->clean = fields.flag("clean_text");
    bert->chinese = fields.flag("handle_chinese_chars");
    bert->lowercase = fields.flag("lowercase");
    bert->accents = fields.flag("strip_accents", bert->lowercase);
    return bert;
  }
  refuse_value(fields.place_of("type"), "a normalizer that this program supports", '"' + type + '"');
}

void add_normalizers(const json& value, const JsonPlace& place, int depth, Normalizers& into) {
  if (depth > kDeepest) refuse_value(place, "sequences nested at most 16 deep", "deeper ones");
  Fields fields(value, place);
  const std::string type = fields.text("type");
  if (type == "Sequence") {
    const json& steps = fields.at("normalizers", "an array");
    if (!steps.is_array()) refuse_json(fields.place_of("normalizers"), "an array", steps);
    for (const json& step : steps) add_normalizers(step, fields.place_of("normalizers"), depth + 1, into);
  } else {
    place.take_step();
    into.push_back(read_step(type, fields));
  }
  fields.refuse_the_rest();
}

}  // namespace

void normalize(const Normalizers& normalizers, AlignedText& text) {
  for (const auto& normalizer : normalizers) {
    text.budget->charge(WorkBudget::kCallCost + text.text.size());
    text = (*normalizer)(text);
  }
}

Normalizers read_normalizer(const json& value, const JsonPlace& place) {
  Normalizers steps;
  if (!value.is_null()) add_normalizers(value, place, 0, steps);
  return steps;
}

}  // namespace spillway::data

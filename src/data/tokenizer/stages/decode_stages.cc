#include "data/tokenizer/stages/decode_stages.h"

#include <array>
#include <utility>

#include "base/utf8.h"
#include "data/tokenizer/byte_level.h"

namespace spillway::data {
namespace {

// The budget steps for each byte of a replacement text. They limit texts that replacements would make a hundred times as long.
constexpr size_t kContentCost = 16;

struct Stage : DecodeStage {
  explicit Stage(DecodeStage& stage_behind) : DecodeStage(stage_behind.budget()), next(stage_behind) {}
  void finish() override { next.finish(); }
  DecodeStage& next;
};

/// A stage that holds text back until it has received a whole token.
struct WholeTokenStage : Stage {
  using Stage::Stage;
  virtual void token(std::string text) = 0;
  void take(std::string_view text, bool ends) override {
    held += text;
    if (ends) token(std::exchange(held, {}));
  }
  std::string held;
};

struct Join : Stage {
  using Stage::Stage;
  void take(std::string_view text, bool ends) override {
    if (between) next.put(" ", false);
    between = ends;
    next.put(text, false);
  }
  void finish() override {
    next.put("", true);
    next.finish();
  }
  bool between = false;
};

struct ByteLevel : WholeTokenStage {
  using WholeTokenStage::WholeTokenStage;
  void token(std::string text) override {
    bytes += bytes_of_characters(text).value_or(text);
    const size_t whole = bytes.size() - static_cast<size_t>(unfinished_utf8(bytes));
    next.put(replace_broken_utf8(std::string_view(bytes).substr(0, whole)), false);
    bytes.erase(0, whole);
  }
  void finish() override {
    next.put(replace_broken_utf8(bytes), true);
    next.finish();
  }
  std::string bytes;
};

int hex_digit(char c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

struct ByteFallback : WholeTokenStage {
  using WholeTokenStage::WholeTokenStage;
  void token(std::string text) override {
    if (text.size() == 6 && text.starts_with("<0x") && text[5] == '>') {
      const int high = text[3] == '+' ? 0 : hex_digit(text[3]), low = hex_digit(text[4]);
      if (high >= 0 && low >= 0) {
        bytes += static_cast<char>(static_cast<unsigned char>(16 * high + low));
        return;
      }
    }
    flush();
    next.put(text, true);
  }
  void flush() {
    if (bytes.empty()) return;
    if (is_utf8(bytes)) {
      next.put(bytes, true);
    } else {
      for (size_t i = 0; i < bytes.size(); ++i) next.put(kReplacementText, true);
    }
    bytes.clear();
  }
  void finish() override {
    flush();
    next.finish();
  }
  std::string bytes;
};

struct Fuse : Stage {
  using Stage::Stage;
  void take(std::string_view text, bool) override { next.put(text, false); }
  void finish() override {
    next.put("", true);
    next.finish();
  }
};

struct Strip : Stage {
  Strip(DecodeStage& stage_behind, char32_t code, i64 at_start, i64 at_stop)
      : Stage(stage_behind), content(utf8_of(code)), start(at_start), stop(at_stop) {}
  void take(std::string_view text, bool ends) override {
    while (stripped < start && text.starts_with(content)) {
      text.remove_prefix(content.size());
      ++stripped;
    }
    if (!text.empty()) stripped = start;
    // Occurrences of `content` at the end of the text, at most `stop` of
    // them, are held back. If the token ends after them, they are dropped.
    size_t certain = text.size();
    i64 at_end = 0;
    while (at_end < stop && text.substr(0, certain).ends_with(content)) {
      certain -= content.size();
      ++at_end;
    }
    const i64 let_go = certain > 0 ? held : std::max<i64>(held + at_end - stop, 0);
    std::string made;
    for (i64 i = 0; i < let_go; ++i) made += content;
    next.put(made.append(text, 0, certain), ends);
    held += at_end - let_go;
    if (!ends) return;
    held = 0;
    stripped = 0;
  }
  std::string content;
  i64 start, stop, stripped = 0, held = 0;  // `stripped` counts the removed occurrences of `content`, `held` those that are held back
};

/// A stage that replaces a fixed text, the pattern. Bytes that may be the beginning of an occurrence
/// are held back. If the next byte does not continue the occurrence, the pattern's borders (Knuth,
/// Morris, Pratt 1977) tell how many of these bytes may still be the beginning of one.
struct ReplaceText : Stage {
  ReplaceText(DecodeStage& stage_behind, std::shared_ptr<const Pattern> what, std::string by)
      : Stage(stage_behind), pattern(std::move(what)), text_of_pattern(*pattern->literal()), content(std::move(by)) {}
  void take(std::string_view text, bool ends) override {
    std::string made;
    for (const char c : text) {
      while (matched > 0 && text_of_pattern[matched] != c) {
        const size_t shorter = pattern->borders()[matched - 1];
        made.append(text_of_pattern, 0, matched - shorter);
        matched = shorter;
      }
      if (text_of_pattern[matched] != c) {
        made += c;
      } else if (++matched == text_of_pattern.size()) {
        budget().charge(kContentCost * content.size());
        made += content;
        matched = 0;
      }
    }
    if (ends) made.append(text_of_pattern, 0, std::exchange(matched, 0));
    next.put(made, ends);
  }
  std::shared_ptr<const Pattern> pattern;
  const std::string& text_of_pattern;
  std::string content;
  size_t matched = 0;
};

struct ReplaceRegex : WholeTokenStage {
  ReplaceRegex(DecodeStage& stage_behind, std::shared_ptr<const Pattern> what, std::string by)
      : WholeTokenStage(stage_behind), pattern(std::move(what)), content(std::move(by)) {}
  void token(std::string text) override {
    Segments segments;
    pattern->segments(text, budget(), segments);
    for (const auto& [begin, end, match] : segments) {
      if (match) budget().charge(kContentCost * content.size());
      next.put(match ? content : text.substr(begin, end - begin), false);
    }
    next.put("", true);
  }
  std::shared_ptr<const Pattern> pattern;
  std::string content;
};

struct SpacesBack : Stage {
  SpacesBack(DecodeStage& stage_behind, char32_t code, bool in_first) : Stage(stage_behind), replacement(code), drop(in_first) {}
  void take(std::string_view text, bool ends) override {
    std::string made;
    for (size_t at = 0; at < text.size();) {
      const char32_t code = next_code(text, at);
      if (code != replacement) {
        append_code(made, code);
      } else if (!drop) {
        made += ' ';
      }
    }
    if (ends) drop = false;
    next.put(made, ends);
  }
  char32_t replacement;
  bool drop;
};

/// Replaces all occurrences of `what` in `text` by `by`, which must not be longer than `what`.
void replace_all(std::string& text, std::string_view what, std::string_view by) {
  size_t at = find_bytes(text, what, 0);
  size_t kept = at;
  while (at != std::string::npos) {
    std::copy(by.begin(), by.end(), text.begin() + static_cast<std::ptrdiff_t>(kept));
    kept += by.size();
    const size_t rest = at + what.size();
    at = find_bytes(text, what, rest);
    const size_t end = std::min(at, text.size());
    std::copy(text.begin() + static_cast<std::ptrdiff_t>(rest), text.begin() + static_cast<std::ptrdiff_t>(end),
              text.begin() + static_cast<std::ptrdiff_t>(kept));
    kept += end - rest;
  }
  text.resize(std::min(kept, text.size()));
}

/// Quickly checks whether WordPieces' cleanup might change the text. Returns false if the text contains
/// nothing that the cleanup changes. All that it changes begins with a space and one of the characters below.
bool may_be_unclean(std::string_view text) {
  for (size_t at = text.find(' '); at != std::string_view::npos; at = text.find(' ', at + 1)) {
    if (at + 1 < text.size() && std::string_view(".?!,'nd").find(text[at + 1]) != std::string_view::npos) return true;
  }
  return false;
}

struct WordPieces : WholeTokenStage {
  WordPieces(DecodeStage& stage_behind, std::string before, bool clean)
      : WholeTokenStage(stage_behind), prefix(std::move(before)), cleanup(clean) {}
  void token(std::string text) override {
    if (!first && text.starts_with(prefix)) {
      text.erase(0, prefix.size());
    } else if (!first) {
      text.insert(0, " ");
    }
    first = false;
    static constexpr std::array<std::array<std::string_view, 2>, 11> kClean = {{{" .", "."},
                                                                                {" ?", "?"},
                                                                                {" !", "!"},
                                                                                {" ,", ","},
                                                                                {" ' ", "'"},
                                                                                {" n't", "n't"},
                                                                                {" 'm", "'m"},
                                                                                {" do not", " don't"},
                                                                                {" 's", "'s"},
                                                                                {" 've", "'ve"},
                                                                                {" 're", "'re"}}};
    if (cleanup && may_be_unclean(text)) {
      for (const auto& [what, by] : kClean) replace_all(text, what, by);
    }
    next.put(text, true);
  }
  std::string prefix;
  bool cleanup, first = true;
};

struct Suffixes : WholeTokenStage {
  Suffixes(DecodeStage& stage_behind, std::string behind) : WholeTokenStage(stage_behind), suffix(std::move(behind)) {}
  void token(std::string text) override {
    flush(" ");
    last = std::move(text);
    any = true;
  }
  void flush(std::string_view by) {
    if (!any) return;
    replace_all(last, suffix, by);
    next.put(last, true);
  }
  void finish() override {
    flush("");
    next.finish();
  }
  std::string suffix, last;
  bool any = false;
};

}  // namespace

StageOwner join_stage(DecodeStage& next) { return std::make_unique<Join>(next); }
StageOwner byte_level_stage(DecodeStage& next) { return std::make_unique<ByteLevel>(next); }
StageOwner byte_fallback_stage(DecodeStage& next) { return std::make_unique<ByteFallback>(next); }
StageOwner fuse_stage(DecodeStage& next) { return std::make_unique<Fuse>(next); }
StageOwner strip_stage(DecodeStage& next, char32_t content, i64 start, i64 stop) {
  return std::make_unique<Strip>(next, content, start, stop);
}
StageOwner replace_stage(DecodeStage& next, std::shared_ptr<const Pattern> pattern, const std::string& content) {
  if (pattern->literal()) return std::make_unique<ReplaceText>(next, std::move(pattern), content);
  return std::make_unique<ReplaceRegex>(next, std::move(pattern), content);
}
StageOwner metaspace_stage(DecodeStage& next, char32_t replacement, bool drop_first) {
  return std::make_unique<SpacesBack>(next, replacement, drop_first);
}
StageOwner word_piece_stage(DecodeStage& next, const std::string& prefix, bool cleanup) {
  return std::make_unique<WordPieces>(next, prefix, cleanup);
}
StageOwner suffix_stage(DecodeStage& next, const std::string& suffix) { return std::make_unique<Suffixes>(next, suffix); }

}  // namespace spillway::data

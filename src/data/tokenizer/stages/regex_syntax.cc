// Translates patterns from Oniguruma's Ruby syntax to PCRE2's.
#include <bit>
#include <cctype>
#include <vector>

#include "base/error.h"
#include "data/tokenizer/stages/regex.h"

namespace spillway::data {
namespace {

// The contents of the character classes that replace \s and \w. They are spelled out
// because PCRE2's own \s also contains U+180E, and its \w lacks marks and connectors.
constexpr std::string_view kSpaces = R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kWords =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})";
// The superscripts and fractions of Latin-1. In Oniguruma, \w matches them outside of a character class but not inside one.
constexpr std::string_view kLatinNumbers = R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
constexpr std::string_view kHexDigits = "0-9a-fA-F";

// Limits on patterns that may run on a window of the text. They keep the cost of one matching attempt small, whatever the pattern is.
constexpr size_t kLongestInWindow = 1024;
constexpr u32 kMostRepeatsInWindow = 64;

class Translation {
 public:
  /// Begins the translation of a pattern. If `counted` is true, callouts are inserted into the translated pattern.
  Translation(std::string_view pattern, const std::string& where, const std::function<bool(const std::string&)>& knows_property,
              bool counted)
      : pattern_(pattern), where_(where), knows_property_(knows_property), counted_(counted) {
    has_window_ = pattern.size() <= kLongestInWindow;
  }

  bool has_window() const { return has_window_; }

  std::string run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        begin_atom();
        escape(false);
      } else if (c == '[') {
        begin_atom();
        character_class();
      } else if (c == '(') {
        open_group();
      } else if (c == ')') {
        if (!groups_.empty()) {
          callout(kCalloutHere);
          atom_ = groups_.back(), groups_.pop_back();
        }
        out_ += pattern_[at_++];
      } else if (c == '{' && interval()) {
      } else if (c == '*' || c == '+' || c == '?') {
        before_repeat(0);
        out_ += pattern_[at_++];
        behind_repeat();
      } else {
        if (c == '|' && !groups_.empty()) callout(kCalloutHere);
        // a window may end in the middle of the text, and PCRE2 sees no line start after a newline at the very end
        if (c == '^') has_window_ = false;
        if (std::string_view("|^$").find(c) == std::string_view::npos) begin_atom();
        out_ += c;
        ++at_;
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorCode::data, where_ + ": expected a regular expression that this program can run, got one with " + what + " at byte " +
                                     std::to_string(at_));
  }
  void begin_atom() {
    const bool within_character = (static_cast<unsigned char>(pattern_[at_]) & 0xC0) == 0x80;
    if (!within_character) atom_ = out_.size();
  }
  char peek(size_t ahead) const { return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0'; }

  void callout(unsigned number) {
    if (counted_) out_ += callout_text(number);
  }
  static std::string callout_text(unsigned number) { return "(?C" + std::to_string(number) + ")"; }
  /// Inserts a callout before the last atom (the part that a repeat applies to). The atom will be repeated at least `least` times.
  void before_repeat(u32 least) {
    if (counted_) out_.insert(atom_, callout_text(least == 0 ? kCalloutHere : kCalloutRepeat + static_cast<u32>(std::bit_width(least))));
  }
  /// Copies the character that makes a repeat lazy or possessive, if there is one. Then inserts a callout.
  void behind_repeat() {
    if (peek(0) == '?' || peek(0) == '+') out_ += pattern_[at_++];
    callout(kCalloutBehind);
  }

  static std::string in_brackets(std::string_view set, bool negated) { return std::string(negated ? "[^" : "[") + std::string(set) + "]"; }

  void set(std::string_view inside, bool in_class, bool negated) {
    if (!in_class) {
      out_ += in_brackets(std::string(inside) + std::string(inside == kWords ? kLatinNumbers : ""), negated);
    } else if (!negated) {
      out_ += inside;
    } else if (inside == kSpaces) {
      out_ += R"(\S\x{180e})";
    } else {
      refuse("a negated set inside a character class");
    }
  }

  void boundary(bool negated) {
    const std::string word = in_brackets(std::string(kWords) + std::string(kLatinNumbers), false);
    out_ += negated ? "(?:(?<=" + word + ")(?=" + word + ")|(?<!" + word + ")(?!" + word + "))"
                    : "(?:(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + "))";
  }

  void property(char letter) {
    if (peek(2) != '{') refuse("a property name without braces");
    const size_t close = pattern_.find('}', at_);
    if (close == std::string_view::npos) refuse("a property name without a closing brace");
    std::string name(pattern_.substr(at_ + 3, close - at_ - 3));
    const std::string negation = name.starts_with("^") ? "^" : "";
    name.erase(0, negation.size());
    for (const char c : name) {
      if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != ' ')
        refuse("a property name of other characters than letters, digits, _ and spaces");
    }
    if (name.size() > 2 && knows_property_("sc:" + name)) name = "sc:" + name;
    out_ += "\\" + std::string(1, letter) + "{" + negation + name + "}";
    at_ = close + 1;
  }

  void escape(bool in_class) {
    const char c = peek(1);
    switch (c) {
      case '\0':
        refuse("a backslash at its end");
      case 's':
        set(kSpaces, in_class, false);
        break;
      case 'S':
        set(kSpaces, in_class, true);
        break;
      case 'w':
        set(kWords, in_class, false);
        break;
      case 'W':
        set(kWords, in_class, true);
        break;
      case 'h':
        set(kHexDigits, in_class, false);
        break;
      case 'H':
        set(kHexDigits, in_class, true);
        break;
      case 'p':
      case 'P':
        return property(c);
      case 'u': {
        for (size_t i = 2; i < 6; ++i) {
          if (!std::isxdigit(static_cast<unsigned char>(peek(i)))) refuse("\\u without four digits");
        }
        out_ += "\\x{" + std::string(pattern_.substr(at_ + 2, 4)) + "}";
        at_ += 6;
        return;
      }
      case 'b':
      case 'B':
        if (!in_class) {
          boundary(c == 'B');
          break;
        }
        [[fallthrough]];
      default:
        if (c == 'G') has_window_ = false;  // \G does not work on a window, since its meaning depends on where the search begins
        if (c == 'X' && counted_) {
          out_ += "(?:" + callout_text(kCalloutHere) + "\\X" + callout_text(kCalloutBehind) + ")";
          break;
        }
        if ((c >= '1' && c <= '9') || c == 'k' || c == 'g') callout(kCalloutReference);
        if (std::isalpha(static_cast<unsigned char>(c)) && std::string_view("dDnrtfvaexAzZRXGkgbo").find(c) == std::string_view::npos) {
          refuse(std::string("the escape \\") + c);
        }
        out_ += pattern_.substr(at_, 2 + operand(c));
        at_ += operand(c);
    }
    at_ += 2;
  }
  /// Returns how many bytes after an escape's letter still belong to the escape: those of a character code, a number or a name.
  size_t operand(char c) const {
    const char open = peek(2);
    if (std::string_view("xogk").find(c) != std::string_view::npos && (open == '{' || open == '<' || open == '\'')) {
      const size_t close = pattern_.find(open == '{' ? '}' : open == '<' ? '>' : open, at_ + 3);
      return close == std::string_view::npos ? 0 : close - at_ - 1;
    }
    size_t n = c == 'g' && (open == '-' || open == '+') ? 1 : 0;
    const size_t first = n;
    const auto digit = [&](char of) {
      return c == 'x' ? std::isxdigit(static_cast<unsigned char>(of)) : std::isdigit(static_cast<unsigned char>(of));
    };
    const bool takes_digits = c == 'x' || c == 'g' || (c >= '0' && c <= '9');
    while (takes_digits && n < first + 2 && digit(peek(2 + n))) ++n;
    return n;
  }

  void character_class() {
    out_ += pattern_[at_++];
    if (peek(0) == '^') out_ += pattern_[at_++];
    bool first = true;
    int within = 0;  // the depth of nested character classes, whose members are added to the outer class
    while (at_ < pattern_.size() && (pattern_[at_] != ']' || first || within > 0)) {
      if (pattern_[at_] == '\\') {
        escape(true);
      } else if (pattern_[at_] == '[') {
        if (peek(1) == ':' || peek(1) == '^' || peek(1) == ']') refuse("a named or negated class inside a character class");
        ++within;
        ++at_;
      } else if (pattern_[at_] == '&' && peek(1) == '&') {
        refuse("an intersection of character classes");
      } else if (pattern_[at_] == ']' && within > 0) {
        --within;
        ++at_;
      } else {
        if (pattern_[at_] == ']') out_ += '\\';
        out_ += pattern_[at_++];
      }
      first = false;
    }
    if (at_ < pattern_.size()) out_ += pattern_[at_++];
  }

  void open_group() {
    if (peek(1) == '*') refuse("a group that begins with *");
    if (peek(1) == '?' && peek(2) == '<' && (peek(3) == '=' || peek(3) == '!')) callout(kCalloutBackward);
    groups_.push_back(out_.size());
    out_ += pattern_[at_++];
    if (peek(0) != '?') return;
    out_ += pattern_[at_++];
    // The letters are the options of the group. Oniguruma's option m corresponds to PCRE2's option s, and PCRE2's own m is always on.
    size_t letters = 0;
    while (std::isalpha(static_cast<unsigned char>(peek(letters))) || peek(letters) == '-') ++letters;
    const char behind = peek(letters);
    const bool options = letters > 0 && (behind == ':' || behind == ')');
    if (!options && std::string_view(":=!<>").find(peek(0)) == std::string_view::npos) refuse("a group of an unknown kind");
    for (size_t i = 0; options && i < letters; ++i) {
      const char c = pattern_[at_++];
      if (c != 'i' && c != 'm' && c != '-') refuse(std::string("the option ") + c);
      out_ += c == 'm' ? 's' : c;
    }
    if (options && behind == ')') {  // options without a ':' apply to the rest of the enclosing group
      groups_.pop_back();
      out_ += pattern_[at_++];
      return;
    }
    if (peek(0) == '<' && (peek(1) == '=' || peek(1) == '!')) {
      out_ += pattern_.substr(at_, 2);
      at_ += 2;
    } else if (std::string_view(":=!>").find(peek(0)) != std::string_view::npos) {
      out_ += pattern_[at_++];
    }
  }

  /// Translates {n}, {n,}, {,m} or {n,m}. If a + follows, it repeats the whole repeat.
  bool interval() {
    size_t i = 1;
    while (std::isdigit(static_cast<unsigned char>(peek(i)))) ++i;
    const bool from = i > 1;
    const bool comma = peek(i) == ',';
    const size_t second = comma ? i + 1 : i;
    i = second;
    while (comma && std::isdigit(static_cast<unsigned char>(peek(i)))) ++i;
    const bool to = comma && i > second;
    if (peek(i) != '}' || (!from && !to)) return false;
    const u32 least = repeats(1);
    if (least > kMostRepeatsInWindow || (to && repeats(second) > kMostRepeatsInWindow)) has_window_ = false;
    before_repeat(least);
    out_ += "{" + (from ? "" : std::string("0")) + std::string(pattern_.substr(at_ + 1, i));
    at_ += i + 1;
    const bool lazy = peek(0) == '?';
    if (lazy) out_ += pattern_[at_++];
    callout(kCalloutBehind);
    if (peek(0) == '+' && !lazy) {
      out_.insert(atom_, "(?:");
      out_ += ')';
    }
    return true;
  }
  /// Parses the number at `ahead`. A number that PCRE2 would refuse because it is too large is reduced to 0xFFFF.
  u32 repeats(size_t ahead) const {
    u32 number = 0;
    for (size_t i = ahead; std::isdigit(static_cast<unsigned char>(peek(i))) && number <= 0xFFFF; ++i)
      number = 10 * number + static_cast<u32>(peek(i) - '0');
    return std::min(number, u32{0xFFFF});
  }

  std::string_view pattern_;
  const std::string& where_;
  const std::function<bool(const std::string&)>& knows_property_;
  bool counted_, has_window_;
  std::string out_;
  size_t at_ = 0, atom_ = 0;
  std::vector<size_t> groups_;
};

}  // namespace

TranslatedPattern translate_pattern(std::string_view pattern, const std::string& where,
                                    const std::function<bool(const std::string&)>& knows_property) {
  Translation quick(pattern, where, knows_property, false), counted(pattern, where, knows_property, true);
  TranslatedPattern translated{quick.run(), counted.run()};
  translated.has_window = quick.has_window();
  return translated;
}

}  // namespace spillway::data

#include "data/tokenizer/stages/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <optional>

#include "base/error.h"
#include "base/utf8.h"
#include "data/text/unicode.h"

namespace spillway::data {
namespace {

constexpr size_t kLongestPattern = 4096;
// The limits of the quick program (regex.h): the size of its window in bytes, and the steps that PCRE2 may take from each starting
// position. If PCRE2 cannot compile to machine code, its interpreter counts finer steps, so the limit is higher.
constexpr size_t kWindow = 128;
constexpr u32 kQuickSteps = 64, kQuickStepsInterpreted = 1024;
// the step limit of the counted program; it is a last resort, because callouts usually end the search much earlier
constexpr u32 kCountedSteps = 100'000'000;
constexpr size_t kCalloutCost = 4;        // the budget steps for each callout
constexpr u32 kHeapLimitKiB = 64 * 1024;  // the KiB of memory that PCRE2's backtracking may take
constexpr size_t kJitStackBytes = 8 * 1024 * 1024;
// \C (a single byte) is disabled because it could split a character.
constexpr u32 kCompileOptions = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;

struct CodeFree {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct CompileContextFree {
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};
struct MatchContextFree {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct MatchDataFree {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct JitStackFree {
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};
using Code = std::unique_ptr<pcre2_code, CodeFree>;

struct CompileResult {
  Code code;
  int error = 0;
  size_t at = 0;
};

CompileResult compile_pcre2(const std::string& pattern) {
  const std::unique_ptr<pcre2_compile_context, CompileContextFree> context(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_max_pattern_length(context.get(), 1 << 20);
  CompileResult result;
  result.code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), kCompileOptions, &result.error, &result.at,
                                  context.get()));
  return result;
}

std::string pcre2_words(int error) {
  std::array<PCRE2_UCHAR, 256> words{};
  pcre2_get_error_message(error, words.data(), words.size());
  return reinterpret_cast<const char*>(words.data());
}

}  // namespace

struct Regex::Compiled {
  struct Program {
    Code code;
    bool jit = false;
  };
  Program quick, counted;
  bool has_window = false;
  size_t looks_back = 0;  // the number of characters in the pattern's longest look-behind
};

struct Regex::Walk::Data {
  explicit Data(WorkBudget& of_text) : budget(of_text) {}
  Data(const std::string& where, size_t text_bytes) : own(std::in_place, where, text_bytes), budget(*own) {}
  int run(const Compiled::Program& program, u32 steps, std::string_view text, size_t from, u32 options);
  static int charge(pcre2_callout_block* callout, void* data);

  std::optional<WorkBudget> own;
  WorkBudget& budget;
  size_t looks_back = 0;
  size_t counted_to = 0;  // the position up to which the text has been charged to the budget
  u32 limit = 0;          // the match limit that is set in `context`; 0 means that PCRE2's default is set
  std::unique_ptr<pcre2_match_data, MatchDataFree> match;
  std::unique_ptr<pcre2_match_context, MatchContextFree> context;
  std::unique_ptr<pcre2_jit_stack, JitStackFree> stack;
  // A copy of the text in which characters that PCRE2's tables do not know are replaced
  // by older ones. If the copy is not empty, it is searched instead of the text.
  std::string old_text;
};

Regex::Regex(std::string_view pattern, std::string where)
    : pattern_(pattern), where_(std::move(where)), compiled_(std::make_unique<Compiled>()) {
  if (pattern.size() > kLongestPattern) {
    throw Error(ErrorCode::data, where_ + ": expected a regular expression of at most " + std::to_string(kLongestPattern) +
                                     " bytes, got one of " + std::to_string(pattern.size()) + "; use a shorter one");
  }
  const auto knows = [](const std::string& name) { return compile_pcre2("\\p{" + name + "}").code != nullptr; };
  const TranslatedPattern translated = translate_pattern(pattern, where_, knows);
  const auto compile = [&](const std::string& text, u32 modes) {
    CompileResult result = compile_pcre2(text);
    if (!result.code) {
      throw Error(ErrorCode::data, where_ + ": expected a regular expression, got one that PCRE2 refuses at byte " +
                                       std::to_string(result.at) + ": " + pcre2_words(result.error));
    }
    const bool jit = pcre2_jit_compile(result.code.get(), modes) == 0;
    return Compiled::Program{std::move(result.code), jit};
  };
  compiled_->quick = compile(translated.quick, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
  compiled_->counted = compile(translated.counted, PCRE2_JIT_COMPLETE);
  u32 looks_back = 0;
  pcre2_pattern_info(compiled_->quick.code.get(), PCRE2_INFO_MAXLOOKBEHIND, &looks_back);
  compiled_->looks_back = looks_back;
  compiled_->has_window = translated.has_window && looks_back <= kWindow;
}

Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Regex::Walk::Walk(const Regex& regex, std::string_view text, WorkBudget& budget) : Walk(regex, text, std::make_unique<Data>(budget)) {}
Regex::Walk::Walk(const Regex& regex, std::string_view text) : Walk(regex, text, std::make_unique<Data>(regex.where_, text.size())) {}

Regex::Walk::Walk(const Regex& regex, std::string_view text, std::unique_ptr<Data> data)
    : regex_(regex), text_(text), data_(std::move(data)) {
  data_->budget.charge(WorkBudget::kCallCost);
  data_->looks_back = regex.compiled_->looks_back;
  data_->match.reset(pcre2_match_data_create(1, nullptr));
  data_->context.reset(pcre2_match_context_create(nullptr));
  data_->old_text = with_old_characters(text);
  if (!data_->old_text.empty()) text_ = data_->old_text;
  require(data_->match && data_->context, "[tokenizer] expected memory for matching a regular expression, got none");
  pcre2_set_heap_limit(data_->context.get(), kHeapLimitKiB);
  pcre2_set_callout(data_->context.get(), &Data::charge, data_.get());
}

Regex::Walk::~Walk() = default;

int Regex::Walk::Data::charge(pcre2_callout_block* callout, void* data) {
  Data& self = *static_cast<Data*>(data);
  const size_t at = callout->current_position;
  size_t steps = kCalloutCost;
  if (callout->callout_number == kCalloutBehind) {
    steps += at > self.counted_to ? at - self.counted_to : 0;
  } else if (callout->callout_number == kCalloutReference) {
    steps += at > callout->start_match ? at - callout->start_match : 0;
  } else if (callout->callout_number == kCalloutBackward) {
    steps += self.looks_back;
  } else if (callout->callout_number >= kCalloutRepeat) {
    steps += size_t{1} << (callout->callout_number - kCalloutRepeat);
  }
  self.counted_to = at;
  return self.budget.spend(steps) ? 0 : PCRE2_ERROR_CALLOUT;
}

inline int Regex::Walk::Data::run(const Compiled::Program& program, u32 steps, std::string_view text, size_t from, u32 options) {
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.empty() ? "" : text.data());
  if (steps != limit) pcre2_set_match_limit(context.get(), limit = steps);
  if (!program.jit) {
    return pcre2_match(program.code.get(), subject, text.size(), from, options | PCRE2_NO_UTF_CHECK, match.get(), context.get());
  }
  return pcre2_jit_match(program.code.get(), subject, text.size(), from, options, match.get(), context.get());
}

int Regex::Walk::match(size_t from) {
  const Compiled& compiled = *regex_.compiled_;
  const u32 quick_steps = compiled.quick.jit ? kQuickSteps : kQuickStepsInterpreted;
  while (compiled.has_window) {
    const bool whole = text_.size() - from <= kWindow;
    size_t end = whole ? text_.size() : from + kWindow;
    while (!whole && (static_cast<unsigned char>(text_[end]) & 0xC0) == 0x80) --end;
    const int found = data_->run(compiled.quick, quick_steps, text_.substr(0, end), from, whole ? 0 : PCRE2_PARTIAL_HARD);
    if (found >= 0 || (whole && found == PCRE2_ERROR_NOMATCH)) return found;
    if (found != PCRE2_ERROR_NOMATCH) break;
    from = end;
  }
  return match_counted(from);
}

int Regex::Walk::match_counted(size_t from) {
  const Compiled& compiled = *regex_.compiled_;
  data_->budget.charge(WorkBudget::kCallCost);
  const auto counted = [&] { return data_->run(compiled.counted, kCountedSteps, text_, from, 0); };
  const int found = counted();
  if (found != PCRE2_ERROR_JIT_STACKLIMIT || data_->stack) return found;
  data_->stack.reset(pcre2_jit_stack_create(64 * 1024, kJitStackBytes, nullptr));
  pcre2_jit_stack_assign(data_->context.get(), nullptr, data_->stack.get());
  return counted();
}

bool Regex::Walk::next() {
  while (from_ <= text_.size()) {
    const int found = match(from_);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found == PCRE2_ERROR_CALLOUT) {
      throw Error(ErrorCode::data, regex_.where_ + ": expected at most " + std::to_string(WorkBudget::kStepsPerByte) +
                                       " steps for each byte of a text, got more in a text of " + std::to_string(text_.size()) +
                                       " bytes; use a pattern that backtracks less");
    }
    if (found < 0) {
      throw Error(ErrorCode::data, regex_.where_ + ": expected a search that ends within the limits, got \"" + pcre2_words(found) +
                                       "\" in a text of " + std::to_string(text_.size()) + " bytes; use a pattern that backtracks less");
    }
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data_->match.get());
    if (range[0] > range[1] || range[0] < from_) {  // \K inside an assertion can give a match that does not move forward
      throw Error(ErrorCode::data,
                  regex_.where_ + ": expected matches that move forward in the text, got one that does not; use a pattern without \\K");
    }
    if (range[0] == range[1] && matched_ && range[1] == end_) {
      if (from_ == text_.size()) break;
      next_code(text_, from_);
      continue;
    }
    begin_ = range[0], end_ = from_ = range[1];
    return matched_ = true;
  }
  from_ = text_.size() + 1;
  return false;
}

}  // namespace spillway::data

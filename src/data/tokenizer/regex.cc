#include "data/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>

#include "base/error.h"
#include "data/tokenizer/unicode.h"
#include "data/tokenizer/utf8.h"

namespace spillway::data {
namespace {

// A second's worth of steps, and the memory that backtracking may take.
constexpr u32 kMatchLimit = 100'000'000;
constexpr u32 kHeapLimitKiB = 64 * 1024;
constexpr size_t kJitStackBytes = 8 * 1024 * 1024;
// \C could split a character.
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
  Code code;
  bool jit = false;
};

struct Regex::Walk::Data {
  std::unique_ptr<pcre2_match_data, MatchDataFree> match;
  std::unique_ptr<pcre2_match_context, MatchContextFree> context;
  std::unique_ptr<pcre2_jit_stack, JitStackFree> stack;
  std::string old_text;  // what is matched in the place of a text with characters younger than PCRE2's tables
};

Regex::Regex(std::string_view pattern, std::string where)
    : pattern_(pattern), where_(std::move(where)), compiled_(std::make_unique<Compiled>()) {
  const auto knows = [](const std::string& name) { return compile_pcre2("\\p{" + name + "}").code != nullptr; };
  const std::string translated = pcre2_pattern(pattern, where_, knows);
  CompileResult result = compile_pcre2(translated);
  if (!result.code) {
    throw Error(ErrorCode::data, where_ + ": expected a regular expression, got one that PCRE2 refuses at byte " +
                                     std::to_string(result.at) + ": " + pcre2_words(result.error));
  }
  compiled_->jit = pcre2_jit_compile(result.code.get(), PCRE2_JIT_COMPLETE) == 0;
  compiled_->code = std::move(result.code);
}

Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Regex::Walk::Walk(const Regex& regex, std::string_view text) : regex_(regex), text_(text), data_(std::make_unique<Data>()) {
  data_->match.reset(pcre2_match_data_create(1, nullptr));
  data_->context.reset(pcre2_match_context_create(nullptr));
  data_->old_text = with_old_characters(text);
  if (!data_->old_text.empty()) text_ = data_->old_text;
  require(data_->match && data_->context, "[tokenizer] expected memory for a match, got none");
  pcre2_set_match_limit(data_->context.get(), kMatchLimit);
  pcre2_set_heap_limit(data_->context.get(), kHeapLimitKiB);
}

Regex::Walk::~Walk() = default;

int Regex::Walk::match(size_t from) {
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text_.empty() ? "" : text_.data());
  const pcre2_code* code = regex_.compiled_->code.get();
  const auto once = [&] {
    if (!regex_.compiled_->jit) {
      return pcre2_match(code, subject, text_.size(), from, PCRE2_NO_UTF_CHECK, data_->match.get(), data_->context.get());
    }
    return pcre2_jit_match(code, subject, text_.size(), from, 0, data_->match.get(), data_->context.get());
  };
  int found = once();
  if (found == PCRE2_ERROR_JIT_STACKLIMIT && !data_->stack) {
    data_->stack.reset(pcre2_jit_stack_create(64 * 1024, kJitStackBytes, nullptr));
    pcre2_jit_stack_assign(data_->context.get(), nullptr, data_->stack.get());
    found = once();
  }
  return found;
}

bool Regex::Walk::next() {
  while (from_ <= text_.size()) {
    const int found = match(from_);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) {
      throw Error(ErrorCode::data, regex_.where_ + ": expected a match or none within bounds, got \"" + pcre2_words(found) +
                                       "\" in a text of " + std::to_string(text_.size()) + " bytes; use a pattern that backtracks less");
    }
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data_->match.get());
    if (range[0] > range[1] || range[0] < from_) {  // \K inside an assertion
      throw Error(ErrorCode::data, regex_.where_ + ": expected matches that go forward, got one that does not; use a pattern without \\K");
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

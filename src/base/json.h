// The one door through which JSON text becomes a tree of values, whether it comes from a file, a row of data, a flag or another rank. The
// library behind it (nlohmann::json) copies, prints and compares trees by recursion, throws several kinds of exceptions, and needs up to
// forty bytes of memory for each byte of text. Text that would overflow the stack or take memory out of proportion is therefore refused
// before it is parsed. Pure functions: thread-safe.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace spillway {

/// How deeply lists and objects may nest. Files of models, tokenizers and runs stay below 20.
constexpr int kMostJsonDepth = 200;

/// Why a text was refused.
struct JsonFault {
  size_t byte = 0;       // where it goes wrong, counted from 1; 0: the place is not known
  std::string expected;  // "JSON", "values nested at most 200 deep": what should have been there
  std::string detail;    // the parser's own words; may be empty

  /// A sentence's end: "expected JSON, which goes wrong in line 3, column 7: is it cut short?". `text` is what was parsed.
  std::string in_words(std::string_view text) const;
};

/// What happens to an object in which a key occurs twice. JSON leaves it open; most libraries silently keep one.
enum class RepeatedKeys { keep_last, refuse };

/// The parsed text, or a value whose is_discarded() is true when the text is refused: it is no JSON, it holds a number beyond 1.8e308,
/// lists and objects nest deeper than kMostJsonDepth, or the tree would take more than 512 MiB and eight times the text. `fault`, if given,
/// then says why.
nlohmann::json parse_json(std::string_view text, JsonFault* fault = nullptr, RepeatedKeys repeated = RepeatedKeys::keep_last);
/// The same, with an object's keys in the order of the text; an object of more than 10,000 keys, each of which is looked for one by one, is
/// refused as well.
nlohmann::ordered_json parse_ordered_json(std::string_view text, JsonFault* fault = nullptr,
                                          RepeatedKeys repeated = RepeatedKeys::keep_last);

}  // namespace spillway

// These functions are the only entry point for parsing JSON text, whether it comes from a file, a row of data, a
// flag or another rank. The JSON library (nlohmann::json) copies, prints and compares trees by recursion, throws
// several kinds of exceptions, and needs up to forty bytes of memory for each byte of text. Text that would overflow
// the stack or need disproportionate memory is therefore refused before it is parsed. Pure functions; thread-safe.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace spillway {

/// The greatest nesting depth of lists and objects that is accepted. Files of models, tokenizers and runs stay below 20.
constexpr int kMostJsonDepth = 200;

/// Describes why a text was refused.
struct JsonFault {
  size_t byte = 0;       // the position of the error, counted from 1; 0 if it is not known
  std::string expected;  // what was expected at the position, such as "JSON" or "values nested at most 200 deep"
  std::string detail;    // the parser's own message; may be empty

  /// Returns the end of an error sentence: "expected JSON, got a syntax error in line 3, column 7: the text may be truncated".
  /// `text` is the text that was parsed.
  std::string in_words(std::string_view text) const;
};

/// Selects how to treat an object in which a key occurs twice. The JSON
/// standard leaves this open; most libraries silently keep one of the values.
enum class RepeatedKeys { keep_last, refuse };

/// Returns the parsed text. For a text that is refused, returns a value whose is_discarded() is true, and describes the reason in `fault`,
/// if given. A text is refused when it is not JSON, holds a number beyond 1.8e308, nests lists and objects deeper than kMostJsonDepth, or
/// needs a tree of more than 512 MiB plus eight times the text's size; with RepeatedKeys::refuse also when an object repeats a key.
nlohmann::json parse_json(std::string_view text, JsonFault* fault = nullptr, RepeatedKeys repeated = RepeatedKeys::keep_last);
/// Parses as parse_json does, but keeps an object's keys in the order of the text. Also refuses
/// an object of more than 10,000 keys, because each key is then found by a linear search.
nlohmann::ordered_json parse_ordered_json(std::string_view text, JsonFault* fault = nullptr,
                                          RepeatedKeys repeated = RepeatedKeys::keep_last);

}  // namespace spillway

// GPT-2's way to write any bytes as visible characters: printable bytes of Latin-1 are themselves, the 68 others are U+0100 and on, in
// order. Pure functions.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "base/types.h"

namespace spillway::data {

/// The character of a byte, as UTF-8.
std::string_view byte_character(char byte);
/// The byte that a character stands for; none if it is none of the 256.
std::optional<char> byte_of_character(char32_t code);
/// The bytes that valid UTF-8 stands for; none if a character stands for none.
std::optional<std::string> bytes_of_characters(std::string_view text);

/// GPT-2's rule for words.
inline constexpr std::string_view kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace spillway::data

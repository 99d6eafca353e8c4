// Finds the position of a value in a line of JSON, so that an error message can point to it. Pure function.
#pragma once
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace spillway::data {

/// The way to a value from the outermost level: an object key or a list index for each level.
using JsonPath = std::vector<std::variant<std::string, size_t>>;

/// Returns the byte at which the value under `path` begins. If there is no such value, returns the position of the innermost value on the
/// path that exists. `json` must be valid JSON.
size_t json_place(std::string_view json, const JsonPath& path);

}  // namespace spillway::data

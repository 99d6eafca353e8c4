// Finds the position of a value in a line of JSON, so that an error message can point to it. Pure function.
#pragma once
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace spillway::data {

/// A path from the outermost level to a value: for each level an object key or a list index.
using JsonPath = std::vector<std::variant<std::string, size_t>>;

/// Returns the byte at which the value under `path` begins. If there is no such value, returns the
/// position of the innermost existing value that the path passes through. `json` must be valid JSON.
size_t json_place(std::string_view json, const JsonPath& path);

}  // namespace spillway::data

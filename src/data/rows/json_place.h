// Where in a line of JSON a value stands: what a complaint about a value needs. Pure.
#pragma once
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace spillway::data {

/// A key or an index, from the outside in.
using JsonPath = std::vector<std::variant<std::string, size_t>>;

/// The byte at which the value under `path` begins, or the innermost one around it that is there. `json` must be valid JSON.
size_t json_place(std::string_view json, const JsonPath& path);

}  // namespace spillway::data

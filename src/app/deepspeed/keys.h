// The keys of DeepSpeed's configuration (https://www.deepspeed.ai/docs/config-json and the configuration classes of version 0.19) and what
// becomes of each. Immutable; thread-safe.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace spillway::app {

enum class Treatment {
  same,     // one of our flags, whose value is the key's
  read,     // by what reads the file (deepspeed.cc, deepspeed_optimizer.cc)
  noted,    // it has no part here, for a reason that is said
  refused,  // unless its value is one that asks for nothing
};

struct DeepspeedKey {
  std::string_view path;  // "zero_optimization.stage"; "nebula.*" is all that lies in it
  Treatment treatment;
  std::string_view words;    // same: the flag; noted: why; refused: what there is instead
  std::string_view nothing;  // refused: the JSON values that ask for nothing, with | between them
};

/// Null: DeepSpeed has no such key.
const DeepspeedKey* find_deepspeed_key(std::string_view path);
/// Whether keys lie in it.
bool is_deepspeed_section(std::string_view path);
/// The one whose spelling is nearest, or empty.
std::string nearest_deepspeed_key(const std::string& path);

}  // namespace spillway::app

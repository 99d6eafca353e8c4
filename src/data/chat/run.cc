#include "data/chat/run.h"

#include <fmt/format.h>

#include "base/error.h"
#include "data/chat/value.h"

namespace spillway::data::chat {

Run::Run(const std::string& file, std::time_t now) : file_(file), now_(now) {}

Run::~Run() {
  // Nothing is freed through the ring or chain of another.
  for (auto& space : spaces_) space->attributes.clear();
}

void Run::fail(const std::string& what) const {
  if (message == 0) fail_at(file_, line, what);
  throw Error(ErrorCode::data, fmt::format("[chat template] {}, line {}, message {}: {}", file_, line, message, what));
}

void Run::fail_spent() const { fail("expected a rendering of at most 10 million steps, got a longer one"); }

Space* Run::new_space() {
  spend(100);
  return spaces_.emplace_back(std::make_unique<Space>()).get();
}

void fail_at(const std::string& file, int line, const std::string& what) {
  throw Error(ErrorCode::data, fmt::format("[chat template] {}, line {}: {}", file, line, what));
}

}  // namespace spillway::data::chat

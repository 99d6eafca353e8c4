#include "trainer/node/log_line.h"

#include <array>
#include <ctime>

namespace spillway::trainer {

std::string log_line(std::string_view text) {
  std::array<char, 32> now{};
  const std::time_t seconds = std::time(nullptr);
  std::tm local{};
  std::strftime(now.data(), now.size(), "%F %T", localtime_r(&seconds, &local));
  return std::string(now.data()) + "  " + std::string(text) + "\n";
}

}  // namespace spillway::trainer

#include "app/report/today.h"

#include <ctime>

namespace spillway::app {

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  char text[32] = "";
  localtime_r(&now, &local);
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
  return text;
}

}  // namespace spillway::app

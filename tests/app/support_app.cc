#include "tests/app/support_app.h"

#include <sstream>

namespace spillway::app {

Outcome run_app(const std::vector<std::string>& args, const Host& host) {
  std::ostringstream out, err;
  const int status = run(args, Streams{out, err}, host);
  return {status, out.str(), err.str()};
}

}  // namespace spillway::app

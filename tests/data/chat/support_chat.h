// What the tests of chat templates share: their data, and the words of an error.
#pragma once
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "base/error.h"
#include "tests/support/fixtures.h"

namespace spillway::test {

using Json = nlohmann::ordered_json;

/// A file of tests/data/chat.
inline std::string read_text(const std::string& name) {
  std::ifstream in(spillway::test::data("chat/" + name), std::ios::binary);
  EXPECT_TRUE(in) << name;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

inline Json read_json(const std::string& name) { return Json::parse(read_text(name)); }

/// What the Error(data) says that `action` throws.
template <class Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::data);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

}  // namespace spillway::test

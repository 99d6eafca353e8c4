// Gives the tests of chat templates access to their data files and to the message of an error.
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

/// Returns the content of a file of tests/data/chat.
inline std::string read_text(const std::string& name) {
  std::ifstream in(spillway::test::data("chat/" + name), std::ios::binary);
  EXPECT_TRUE(in) << name;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

inline Json read_json(const std::string& name) { return Json::parse(read_text(name)); }

/// Returns the message of the Error(data) that `action` throws. The test fails if none is thrown.
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

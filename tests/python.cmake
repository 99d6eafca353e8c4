# The Python module's own tests (python/tests, pytest), and its wheel on a machine that has no compiler. scripts/setup.sh --tests brings what they need.
add_test(NAME python/ModuleRelease.KeepsItsTests COMMAND ${Python_EXECUTABLE} -m pytest -q -p no:cacheprovider ${PROJECT_SOURCE_DIR}/python/tests)
set_tests_properties(python/ModuleRelease.KeepsItsTests PROPERTIES LABELS quick TIMEOUT 600
  ENVIRONMENT "PYTHONPATH=${PROJECT_BINARY_DIR}/python:${PROJECT_SOURCE_DIR}/build/tools/python;PYTHONDONTWRITEBYTECODE=1;SPILLWAY_SOURCE=${PROJECT_SOURCE_DIR}")
add_test(NAME python/WheelRelease.TrainsWithoutACompiler COMMAND ${PROJECT_SOURCE_DIR}/python/tests/wheel.sh ${PROJECT_BINARY_DIR} ${Python_EXECUTABLE})
set_tests_properties(python/WheelRelease.TrainsWithoutACompiler PROPERTIES LABELS quick TIMEOUT 600)
# The site, which has the notebooks as Jupyter ran them; site.sh says what is missing where PyPI or Doxygen is.
add_test(NAME e2e/SiteRelease.HasEveryPageAndAsksNobody COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/e2e/site.sh ${PROJECT_BINARY_DIR} ${Python_EXECUTABLE})
set_tests_properties(e2e/SiteRelease.HasEveryPageAndAsksNobody PROPERTIES LABELS quick TIMEOUT 600)

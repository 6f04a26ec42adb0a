# cmake -DBUILD=... -DPREFIX=... -P install.cmake: installs into an empty prefix.
file(REMOVE_RECURSE "${PREFIX}")
execute_process(COMMAND ${CMAKE_COMMAND} --install "${BUILD}" --prefix "${PREFIX}" OUTPUT_QUIET
  COMMAND_ERROR_IS_FATAL ANY)
# The installed files must not lean on the build folder.
file(GLOB installed "${PREFIX}/bin/*" "${PREFIX}/lib/*.so" "${PREFIX}/lib/cmake/troika/*")
foreach(file ${installed})
  file(STRINGS "${file}" leaning REGEX "${BUILD}/(src|lib|CMakeFiles)|${BUILD}:")
  if(leaning)
    message(FATAL_ERROR "${file} names the build folder: ${leaning}")
  endif()
endforeach()

# cmake --install build/release --prefix P: the command, the two libraries, their headers, and find_package(troika).
# Always lib/, never lib64/: the command looks for its plug-in in ../lib.
include(CMakePackageConfigHelpers)
set(TROIKA_PACKAGE_DIR lib/cmake/troika)

set_target_properties(troika PROPERTIES INSTALL_RPATH "$ORIGIN")
set_target_properties(troika_command PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
install(TARGETS troika EXPORT troikaTargets LIBRARY DESTINATION lib)
install(TARGETS troika_command RUNTIME DESTINATION bin)
install(EXPORT troikaTargets NAMESPACE troika:: DESTINATION ${TROIKA_PACKAGE_DIR})

get_property(folders GLOBAL PROPERTY troika_FOLDERS)
if(TROIKA_WITH_TORCH)
  # TroikaTorch adds LibTorch's folder to the run path of all that link it.
  set_target_properties(troika_train PROPERTIES INSTALL_RPATH "$ORIGIN" EXPORT_NAME train)
  set_target_properties(troika_app_train PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS troika_train EXPORT troikaTrainTargets LIBRARY DESTINATION lib)
  install(TARGETS troika_app_train LIBRARY DESTINATION lib)
  install(EXPORT troikaTrainTargets NAMESPACE troika:: DESTINATION ${TROIKA_PACKAGE_DIR})
  install(FILES cmake/TroikaTorch.cmake DESTINATION ${TROIKA_PACKAGE_DIR})
  get_property(train_folders GLOBAL PROPERTY troika_train_FOLDERS)
  list(APPEND folders ${train_folders})
endif()

foreach(target ${folders})
  string(REPLACE "floor_" "" folder ${target})
  install(DIRECTORY src/troika/${folder} DESTINATION include/troika FILES_MATCHING PATTERN "*.h")
endforeach()

configure_package_config_file(cmake/troikaConfig.cmake.in "${CMAKE_CURRENT_BINARY_DIR}/troikaConfig.cmake"
  INSTALL_DESTINATION ${TROIKA_PACKAGE_DIR} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/troikaConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/troikaConfig.cmake" "${CMAKE_CURRENT_BINARY_DIR}/troikaConfigVersion.cmake"
  DESTINATION ${TROIKA_PACKAGE_DIR})

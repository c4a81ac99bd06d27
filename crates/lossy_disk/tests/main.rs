//! Tests of the disk: its model, and the model as a file system.

mod model_properties;
mod mounted_power_cuts;
mod speed_and_errors;
mod support;
mod unmount_in_use;

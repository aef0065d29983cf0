"""Where workflow documents come from: directories, watched for changes, merged by precedence into snapshots."""
